/* Serves the functions of a library to another process, in whose memory they work: a page is
 * fetched from there when it is first touched, and what a call has changed is written back.
 *
 *     qemu-aarch64 -L SYSROOT serve LIBRARY PID
 *
 * Standard input has a call in each line, `name a b c d e f x` with six integers or addresses and a
 * double; its result goes to standard output. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, SEVERAL = 32 * PAGE, MOST = 1 << 16 };

typedef int64_t (*Function)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, double);

static struct {
    char *here, *before;
    size_t size;
} pieces[MOST];
static int fetched, memory;

static char *allocate(char *at, size_t size) {
    const int fixed = at ? MAP_FIXED_NOREPLACE : 0;
    return mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
}

/* Fetch up to `most` bytes; returns whether there are any. */
static int fetch_piece(char *here, size_t most) {
    char *before = allocate(NULL, SEVERAL);
    const ssize_t size = pread(memory, before, most, (off_t)here) / PAGE * PAGE;
    if (size > 0 && fetched < MOST && allocate(here, size) == here) {
        memcpy(here, before, size);
        pieces[fetched].here = here;
        pieces[fetched].before = before;
        pieces[fetched++].size = size;
        return 1;
    }
    munmap(before, SEVERAL);
    return 0;
}

static void fetch(int signal, siginfo_t *what, void *context) {
    (void)signal, (void)context;
    char *here = (char *)((uintptr_t)what->si_addr & ~(uintptr_t)(PAGE - 1));
    if (!fetch_piece(here, SEVERAL) && !fetch_piece(here, PAGE))
        _exit(3); /* there is nothing there either, or something else here */
}

static void write_changes(const uint64_t *here, const uint64_t *before, size_t count) {
    for (size_t first = 0, end; first < count; first = end + 1) {
        for (end = first; end < count && here[end] != before[end]; end++) continue;
        const ssize_t bytes = (end - first) * sizeof *here;
        if (pwrite(memory, here + first, bytes, (off_t)(here + first)) != bytes) _exit(4);
    }
}

static void write_back(void) {
    for (; fetched; fetched--) {
        char *here = pieces[fetched - 1].here, *before = pieces[fetched - 1].before;
        const size_t size = pieces[fetched - 1].size;
        if (memcmp(here, before, size))
            write_changes((uint64_t *)here, (uint64_t *)before, size / sizeof(uint64_t));
        munmap(here, size);
        munmap(before, SEVERAL);
    }
}

int main(int count, char **words) {
    char name[64], file[64];
    int64_t a[6];
    double x;
    void *library = count == 3 ? dlopen(words[1], RTLD_NOW) : NULL;
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 2;
    snprintf(file, sizeof file, "/proc/%s/mem", words[2]);
    if ((memory = open(file, O_RDWR)) < 0) return perror(file), 2;
    const struct sigaction action = {.sa_sigaction = fetch, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
    while (scanf("%63s", name) == 1) {
        for (int i = 0; i < 6; i++)
            if (scanf("%" SCNd64, a + i) != 1) return 2;
        if (scanf("%lf", &x) != 1) return 2;
        Function function = (Function)dlsym(library, name);
        if (!function) return fprintf(stderr, "there is no %s\n", name), 2;
        const int64_t result = function(a[0], a[1], a[2], a[3], a[4], a[5], x);
        write_back();
        printf("%" PRId64 "\n", result);
        fflush(stdout);
    }
    return 0;
}
