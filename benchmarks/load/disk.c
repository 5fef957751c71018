/* A disk with a rate, a latency and a queue depth: one file, read-only, over FUSE.

   usage: disk IMAGE FOLDER BYTES_PER_SECOND LATENCY_MICROSECONDS DEPTH

   FOLDER/disk is IMAGE. A read that arrives takes its turn on a line of BYTES_PER_SECOND and is
   answered LATENCY_MICROSECONDS after its last byte; at most DEPTH reads are in work at once. A loop
   device with direct I/O on it (`losetup --direct-io=on`) is a block device of these figures,
   because the kernel sends its requests on without waiting for each other.

   Without libfuse, so that one static binary runs anywhere: cc -O2 -static -pthread -o disk disk.c
*/
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { ROOT = 1, FILE_NODE = 2, PAGES = 256, MAX_READ = PAGES * 4096, FOREVER = 1 << 30 };

static int fuse;
static const char *image;
static int64_t image_size, line_free;
static double rate;
static int64_t latency;
static pthread_mutex_t line = PTHREAD_MUTEX_INITIALIZER;

static void die(const char *what) {
  perror(what);
  exit(1);
}

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Wait until the disk has read so many bytes that were asked for now. */
static void wait_for_disk(int64_t bytes) {
  pthread_mutex_lock(&line);
  int64_t asked = now();
  line_free = (line_free > asked ? line_free : asked) + (int64_t)(bytes / rate * 1e9);
  int64_t done = line_free + latency;
  pthread_mutex_unlock(&line);
  struct timespec until = {done / 1000000000, done % 1000000000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
  }
}

static void answer(uint64_t request, int error, const void *data, size_t size) {
  struct fuse_out_header head = {.len = sizeof head + size, .error = -error, .unique = request};
  struct iovec parts[] = {{&head, sizeof head}, {(void *)data, size}};
  /* ENOENT: the kernel no longer waits for this answer. */
  if (writev(fuse, parts, size ? 2 : 1) < 0 && errno != ENOENT) die("disk: answer");
}

static struct fuse_attr attributes(uint64_t node) {
  struct fuse_attr found = {.ino = node, .nlink = 1, .blksize = 4096};
  found.mode = node == ROOT ? S_IFDIR | 0555 : S_IFREG | 0444;
  found.size = node == ROOT ? 0 : image_size;
  found.blocks = found.size / 512;
  return found;
}

static void start(uint64_t request, const struct fuse_init_in *in) {
  struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION};
  out.flags = in->flags & (FUSE_ASYNC_READ | FUSE_ASYNC_DIO | FUSE_MAX_PAGES);
  out.max_readahead = in->max_readahead;
  out.max_background = out.congestion_threshold = 1024;
  out.max_write = 4096;
  out.max_pages = PAGES;
  answer(request, 0, &out, sizeof out);
}

static void look_up(uint64_t request, const char *name) {
  struct fuse_entry_out out = {.nodeid = FILE_NODE, .entry_valid = FOREVER, .attr_valid = FOREVER};
  out.attr = attributes(FILE_NODE);
  if (strcmp(name, "disk"))
    answer(request, ENOENT, NULL, 0);
  else
    answer(request, 0, &out, sizeof out);
}

static void read_image(uint64_t request, const struct fuse_read_in *in) {
  int64_t size = in->size;
  if ((int64_t)in->offset >= image_size) size = 0;
  else if ((int64_t)in->offset + size > image_size) size = image_size - in->offset;
  wait_for_disk(size);
  answer(request, 0, image + in->offset, size);
}

static void *serve(void *unused) {
  /* Sleeps end within a microsecond, not within the usual 50. */
  prctl(PR_SET_TIMERSLACK, 1);
  char buffer[FUSE_MIN_READ_BUFFER * 2];
  for (;;) {
    ssize_t got = read(fuse, buffer, sizeof buffer);
    if (got < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN)) continue;
    if (got < 0) exit(errno == ENODEV ? 0 : 1); /* ENODEV: unmounted */
    const struct fuse_in_header *head = (const void *)buffer;
    const void *body = buffer + sizeof *head;
    struct fuse_attr_out attr = {.attr_valid = FOREVER, .attr = attributes(head->nodeid)};
    struct fuse_open_out open = {0};
    switch (head->opcode) {
    case FUSE_INIT: start(head->unique, body); break;
    case FUSE_LOOKUP: look_up(head->unique, body); break;
    case FUSE_GETATTR: answer(head->unique, 0, &attr, sizeof attr); break;
    case FUSE_OPEN: answer(head->unique, 0, &open, sizeof open); break;
    case FUSE_READ: read_image(head->unique, body); break;
    case FUSE_RELEASE:
    case FUSE_FLUSH:
    case FUSE_FSYNC: answer(head->unique, 0, NULL, 0); break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT: break;
    default: answer(head->unique, ENOSYS, NULL, 0);
    }
  }
  return unused;
}

int main(int count, char **words) {
  if (count != 6) {
    fprintf(stderr, "usage: disk IMAGE FOLDER BYTES_PER_SECOND LATENCY_MICROSECONDS DEPTH\n");
    return 2;
  }
  rate = atof(words[3]);
  latency = (int64_t)(atof(words[4]) * 1000);
  int depth = atoi(words[5]);
  struct stat found;
  int file = open(words[1], O_RDONLY);
  if (file < 0 || fstat(file, &found)) die(words[1]);
  image_size = found.st_size;
  image = mmap(NULL, image_size, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
  if (image == MAP_FAILED) die("disk: map the image");
  if ((fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC)) < 0) die("/dev/fuse");
  char options[128];
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,max_read=%d", fuse,
           MAX_READ);
  if (mount("disk", words[2], "fuse", MS_RDONLY | MS_NOSUID | MS_NODEV, options)) die(words[2]);
  /* What is mounted from this disk later must not be this program's to unmount when all end at
     once: it would wait for its own answers. */
  if (unshare(CLONE_NEWNS)) die("disk: a mount namespace");
  /* A disk does not wait for a processor. Without the right to this, the figures are less steady. */
  struct sched_param first = {.sched_priority = 1};
  sched_setscheduler(0, SCHED_RR, &first);
  for (int i = 1; i < depth; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, serve, NULL)) die("disk: a thread");
  }
  serve(NULL);
}
