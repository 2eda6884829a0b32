/* The C side of the interpreter. */
#include "interpreter.h"
#include "ptx.h"

#include <cstdio>
#include <mutex>

struct ptx_module {
    std::unique_ptr<ptx::Module> module;
};
struct ptx_kernel {
    ptx::Program program; /* never made: the pointers are those of programs */
};

namespace {

std::mutex one_at_a_time;

template <class F> int caught(char *why, size_t size, F f) {
    std::lock_guard<std::mutex> hold(one_at_a_time);
    int code = 999;
    std::string text;
    try {
        return f();
    } catch (const ptx::Unsupported &u) {
        text = "cannot run " + u.why;
        code = 801;
    } catch (const ptx::Fault &f) {
        text = f.why;
        code = f.code;
    } catch (const std::exception &e) {
        text = e.what();
    }
    if (size) snprintf(why, size, "%s", text.c_str());
    return code;
}

const ptx::Program &program(const ptx_kernel *k) { return *reinterpret_cast<const ptx::Program *>(k); }

} // namespace

int ptx_load(const void *image, int capability, ptx_module **module, char *why, size_t size) {
    return caught(why, size, [&] {
        std::string text = ptx::text_of(image, capability);
        if (text.empty()) return 209;
        auto read = ptx::read_module(std::move(text));
        if (read->target > capability) return 209;
        if (read->only == 'a' && read->target != capability) return 209;
        if (read->only == 'f' && read->target / 10 != capability / 10) return 209;
        *module = new ptx_module{std::move(read)};
        return 0;
    });
}

int ptx_serves(const void *image, int capability) { return ptx::serves(image, capability); }

void ptx_unload(ptx_module *module) {
    std::lock_guard<std::mutex> hold(one_at_a_time);
    delete module;
}

int ptx_isa(const ptx_module *module) { return module->module->isa; }

int ptx_find(ptx_module *module, const char *name, ptx_kernel **kernel, char *why, size_t size) {
    return caught(why, size, [&] {
        ptx::Program *found = ptx::program_of(*module->module, name);
        *kernel = reinterpret_cast<ptx_kernel *>(found);
        return found ? 0 : 500;
    });
}

int ptx_variable(ptx_module *module, const char *name, void **address, size_t *bytes) {
    auto found = module->module->variables.find(std::string_view(name));
    if (found == module->module->variables.end() || found->second.space == ptx::SHARED || !found->second.address) return 500;
    *address = reinterpret_cast<void *>(found->second.address);
    *bytes = found->second.size;
    return 0;
}

size_t ptx_parameters(const ptx_kernel *kernel) { return program(kernel).parameters.size(); }
void ptx_parameter(const ptx_kernel *kernel, size_t n, size_t *offset, size_t *bytes) {
    *offset = program(kernel).parameters[n].offset;
    *bytes = program(kernel).parameters[n].size;
}
size_t ptx_shared_bytes(const ptx_kernel *kernel) { return program(kernel).shared_bytes; }
unsigned ptx_threads(const ptx_kernel *kernel) { return program(kernel).max_threads; }
int ptx_target(const ptx_kernel *kernel) { return program(kernel).module->target; }

int ptx_launch(const ptx_kernel *kernel, const ptx_grid *grid, void *const *parameters, char *why, size_t size) {
    return caught(why, size, [&] {
        const ptx::Program &p = program(kernel);
        std::vector<uint64_t> buffer(p.parameter_bytes / 8 + 2);
        char *bytes = reinterpret_cast<char *>(buffer.data());
        for (size_t n = 0; n < p.parameters.size(); n++) memcpy(bytes + p.parameters[n].offset, parameters[n], p.parameters[n].size);
        ptx::Grid g;
        static_assert(sizeof g == sizeof *grid);
        memcpy(&g, grid, sizeof g);
        ptx::execute(p, g, bytes);
        return 0;
    });
}
