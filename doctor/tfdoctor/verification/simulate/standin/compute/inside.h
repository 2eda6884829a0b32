/* NCCL that is inside a library of TensorFlow's wheel (2.15 and older): its calls are direct, and no other library can come
 * between. Where libnccl.so.2 is preloaded, the driver's cuInit has each of those functions begin with a jump to the one of
 * the same name here. Their addresses are in the table of symbols that the wheel's file has; where a file is stripped, NCCL
 * stays as it is, and says itself that it has no kernels for this GPU. x86-64 alone. */
#pragma once
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct replaced { const char *name; void *by; };
enum { JUMP = 12 }; /* bytes: mov rax, address; jmp rax */

#ifdef __x86_64__
static int jump(unsigned char *from, const void *to) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)from & ~(page - 1), end = ((uintptr_t)from + JUMP + page - 1) & ~(page - 1);
    if (mprotect((void *)start, end - start, PROT_READ | PROT_WRITE | PROT_EXEC)) return -1;
    from[0] = 0x48, from[1] = 0xb8, from[10] = 0xff, from[11] = 0xe0;
    memcpy(from + 2, &to, 8);
    return mprotect((void *)start, end - start, PROT_READ | PROT_EXEC);
}
#else
static int jump(unsigned char *from, const void *to) { (void)from; (void)to; return -1; }
#endif

/* The functions of a file's own table of symbols; the file may be damaged. Returns how many were replaced. */
static int replace_in(const unsigned char *file, size_t size, uintptr_t bias, const struct replaced *table) {
    const Elf64_Ehdr *head = (const void *)file;
    int count = 0;
    if (size < sizeof *head || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_ident[EI_CLASS] != ELFCLASS64) return 0;
    if (head->e_shoff > size || (size_t)head->e_shnum * sizeof(Elf64_Shdr) > size - head->e_shoff) return 0;
    const Elf64_Shdr *sections = (const void *)(file + head->e_shoff);
    for (int s = 0; s < head->e_shnum; s++) {
        if (sections[s].sh_type != SHT_SYMTAB || sections[s].sh_link >= head->e_shnum) continue;
        const Elf64_Shdr *symbols = &sections[s], *names = &sections[symbols->sh_link];
        if (symbols->sh_offset > size || symbols->sh_size > size - symbols->sh_offset || names->sh_offset > size || names->sh_size > size - names->sh_offset) continue;
        const Elf64_Sym *all = (const void *)(file + symbols->sh_offset);
        const char *text = (const char *)file + names->sh_offset;
        for (size_t i = 0; i < symbols->sh_size / sizeof *all; i++) {
            if (ELF64_ST_TYPE(all[i].st_info) != STT_FUNC || !all[i].st_shndx || all[i].st_size < JUMP || all[i].st_name >= names->sh_size) continue;
            const char *name = text + all[i].st_name;
            size_t left = names->sh_size - all[i].st_name;
            if (left < 5 || memcmp(name, "nccl", 4) != 0) continue;
            for (const struct replaced *one = table; one->name; one++)
                if (strncmp(one->name, name, left) == 0 && !jump((unsigned char *)(bias + all[i].st_value), one->by)) count++;
        }
    }
    return count;
}

static int replace_loaded(struct dl_phdr_info *loaded, size_t unused, void *table) {
    (void)unused;
    struct stat is;
    const char *last = strrchr(loaded->dlpi_name, '/');
    if (!last || !strstr(last, "tensorflow")) return 0;
    int file = open(loaded->dlpi_name, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    if (!fstat(file, &is) && is.st_size > 0) {
        void *bytes = mmap(NULL, (size_t)is.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (bytes != MAP_FAILED) {
            replace_in(bytes, (size_t)is.st_size, loaded->dlpi_addr, table);
            munmap(bytes, (size_t)is.st_size);
        }
    }
    close(file);
    return 0;
}
