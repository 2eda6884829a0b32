/* ptx-run: runs one kernel of a PTX file, for the tests of the interpreter.
 *
 *     ptx-run FILE KERNEL GX,GY,GZ BX,BY,BZ SHARED [u32:N | u64:N | HEX]...
 *
 * An argument of hexadecimal bytes is memory: its address is passed, and what it holds at the end is printed, a line
 * each. Exits with 1 and the driver's code and a reason on standard error where the kernel cannot be run. */
#include "interpreter.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

static int failed(int code, const char *why) {
    fprintf(stderr, "%d %s\n", code, why);
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 6) return failed(1, "too few arguments");
    std::ifstream file(argv[1]);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    char why[4096] = "";
    ptx_grid g;
    sscanf(argv[3], "%u,%u,%u", &g.grid[0], &g.grid[1], &g.grid[2]);
    sscanf(argv[4], "%u,%u,%u", &g.block[0], &g.block[1], &g.block[2]);
    g.shared = unsigned(atoi(argv[5]));

    std::vector<std::vector<uint64_t>> buffers;
    std::vector<size_t> lengths;
    std::vector<uint64_t> values(size_t(argc - 6) + 1);
    std::vector<void *> pointers;
    for (int n = 6; n < argc; n++) {
        uint64_t &value = values[size_t(n - 6)];
        if (strncmp(argv[n], "u32:", 4) == 0 || strncmp(argv[n], "u64:", 4) == 0) {
            value = strtoull(argv[n] + 4, nullptr, 0);
        } else {
            size_t length = strlen(argv[n]) / 2;
            buffers.emplace_back(length / 8 + 1);
            lengths.push_back(length);
            auto *bytes = reinterpret_cast<unsigned char *>(buffers.back().data());
            for (size_t b = 0; b < length; b++) {
                char pair[3] = {argv[n][2 * b], argv[n][2 * b + 1], 0};
                bytes[b] = static_cast<unsigned char>(strtoul(pair, nullptr, 16));
            }
            value = reinterpret_cast<uint64_t>(bytes);
        }
        pointers.push_back(&value);
    }
    ptx_module *module;
    ptx_kernel *kernel;
    int code = ptx_load(text.c_str(), 120, &module, why, sizeof why);
    if (code) return failed(code, why);
    std::unique_ptr<ptx_module, void (*)(ptx_module *)> owner(module, ptx_unload);
    if ((code = ptx_find(module, argv[2], &kernel, why, sizeof why))) return failed(code, why);
    if (pointers.size() != ptx_parameters(kernel)) return failed(1, "not as many arguments as parameters");
    if ((code = ptx_launch(kernel, &g, pointers.data(), why, sizeof why))) return failed(code, why);
    for (size_t n = 0; n < buffers.size(); n++) {
        auto *bytes = reinterpret_cast<unsigned char *>(buffers[n].data());
        for (size_t b = 0; b < lengths[n]; b++) printf("%02x", bytes[b]);
        printf("\n");
    }
}
