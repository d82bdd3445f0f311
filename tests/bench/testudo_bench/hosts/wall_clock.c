/* The wall clock of one computer among several on one machine: LD_PRELOAD moves it by TESTUDO_WALL_AHEAD_NS.

   The kernel has one wall clock, and no namespace for it. What a process reads is moved here, and the times until which
   it waits are moved back; steady clocks are left alone. libfaketime is no substitute: with a clock that is behind, DDS
   delivers seconds late under it, and nodes crash at their end.

   cc -O2 -shared -fPIC -o wall_clock.so wall_clock.c -ldl */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

#define SECOND 1000000000LL
#define LEAST_WALL_S 1000000000LL /* a time before 2001 is that of a steady clock */

static long long ahead_ns;

__attribute__((constructor)) static void begin(void) {
  const char *text = getenv("TESTUDO_WALL_AHEAD_NS");
  ahead_ns = text ? atoll(text) : 0;
}

static void move(struct timespec *time, long long by_ns) {
  long long all = time->tv_sec * SECOND + time->tv_nsec + by_ns;
  time->tv_sec = all / SECOND;
  time->tv_nsec = all % SECOND;
}

static struct timespec real(const struct timespec *deadline) {
  struct timespec found = *deadline;
  if (found.tv_sec > LEAST_WALL_S) move(&found, -ahead_ns);
  return found;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  static int (*next)(clockid_t, struct timespec *);
  if (!next) next = dlsym(RTLD_NEXT, "clock_gettime");
  int status = next(clock, time);
  if (!status && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) move(time, ahead_ns);
  return status;
}

int gettimeofday(struct timeval *value, void *zone) {
  (void)zone;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  value->tv_sec = now.tv_sec;
  value->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *value) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (value) *value = now.tv_sec;
  return now.tv_sec;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *deadline) {
  static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  if (!next) next = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (!next) next = dlsym(RTLD_NEXT, "pthread_cond_timedwait"); /* not the first version of a symbol on aarch64 */
  struct timespec until = real(deadline);
  return next(condition, mutex, &until);
}

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *deadline) {
  static int (*next)(pthread_mutex_t *, const struct timespec *);
  if (!next) next = dlsym(RTLD_NEXT, "pthread_mutex_timedlock");
  struct timespec until = real(deadline);
  return next(mutex, &until);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *deadline) {
  static int (*next)(sem_t *, const struct timespec *);
  if (!next) next = dlsym(RTLD_NEXT, "sem_timedwait");
  struct timespec until = real(deadline);
  return next(semaphore, &until);
}
