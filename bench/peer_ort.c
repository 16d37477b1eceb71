/* ONNX Runtime's side of the inference rows, through its C interface, with no language binding in the way.
**
**   cc -O2 peer_ort.c -o peer_ort -ldl -lm;  ./peer_ort LIBRARY JOBS [words, such as "mlp|cnn"] [budget in seconds]
**
** LIBRARY is libonnxruntime.so.1. JOBS is a text file, one job a line:  workload model.onnx calls input:type:dims[=fill] … [loop in<out:steps]
** type is f32 or i64, dims are joined by x, fill is a number or r for random. `loop cache<cache_out:128` makes so many calls, handing an output
** back as an input that starts with a length of 0; an input named pos counts up. Prints a JSON line a workload: seconds of CPU time per call.
** The interface is a table of functions in a fixed order; only the slots used are named here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  GetErrorMessage = 2, CreateEnv = 3, CreateSession = 7, Run = 9, CreateSessionOptions = 10,
  SetGraphOpt = 23, SetIntra = 24, SetInter = 25, SessionOutputCount = 31, SessionOutputName = 37,
  CreateTensorWithData = 49, GetAllocator = 78, CreateCpuMemoryInfo = 69, ReleaseSession = 95, ReleaseValue = 96
};
typedef void *(*fn)();
static fn *api;
static void chk(void *st) {
  if (!st) return;
  fprintf(stderr, "onnxruntime: %s\n", ((const char *(*)(void *))api[GetErrorMessage])(st));
  exit(1);
}
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
static int cmp(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

#define MAXIN 8
typedef struct { char name[64]; int i64, grow; int64_t dims[8]; int nd; void *data; size_t bytes; void *val; } Input;
static Input in[MAXIN];
static int nin;
static void *env, *mem, *session;
static char *outname[32];
static size_t nout;
static int loop_in = -1, loop_out = -1, loop_steps, pos_in = -1;

static void mk(Input *p) {
  size_t n = 1;
  for (int i = 0; i < p->nd; i++) n *= p->dims[i];
  p->bytes = n * (p->i64 ? 8 : 4);
  chk(api[CreateTensorWithData](mem, p->data, p->bytes, p->dims, (size_t)p->nd, p->i64 ? 7 : 1, &p->val));
}
static void parse_input(char *s) {
  Input *p = &in[nin++];
  memset(p, 0, sizeof *p);
  char *fill = strchr(s, '=');
  if (fill) *fill++ = 0;
  char *type = strchr(s, ':');
  *type++ = 0;
  char *dims = strchr(type, ':');
  if (dims) *dims++ = 0;
  snprintf(p->name, sizeof p->name, "%s", s);
  p->i64 = !strcmp(type, "i64");
  for (char *d = dims; d && *d;) {
    p->dims[p->nd++] = strtol(d, &d, 10);
    if (*d == 'x') d++;
  }
  size_t n = 1;
  for (int i = 0; i < p->nd; i++) n *= p->dims[i];
  p->data = aligned_alloc(64, (n * 8 + 64) / 64 * 64);
  double f = fill && *fill != 'r' ? atof(fill) : 0;
  int rnd = !fill || *fill == 'r';
  for (size_t i = 0; i < n; i++) {
    double v = rnd ? (p->i64 ? (double)(rand() % 65) : rand() / (RAND_MAX + 1.0)) : f;
    if (p->i64) ((int64_t *)p->data)[i] = (int64_t)v;
    else ((float *)p->data)[i] = (float)v;
  }
  if (!strcmp(p->name, "pos")) pos_in = nin - 1;
  mk(p);
}
static void once(void) {
  const char *names[MAXIN];
  void *vals[MAXIN], *outs[32] = {0};
  for (int i = 0; i < nin; i++) { names[i] = in[i].name; vals[i] = in[i].val; }
  int steps = loop_in >= 0 ? loop_steps : 1;
  void *carried = NULL;
  for (int s = 0; s < steps; s++) {
    if (pos_in >= 0 && loop_in >= 0) *(int64_t *)in[pos_in].data = s;
    if (carried) vals[loop_in] = carried;
    memset(outs, 0, sizeof outs);
    chk(api[Run](session, NULL, names, vals, (size_t)nin, (const char *const *)outname, nout, outs));
    if (carried) api[ReleaseValue](carried);
    carried = loop_in >= 0 ? outs[loop_out] : NULL;
    for (size_t o = 0; o < nout; o++)
      if (outs[o] != carried) api[ReleaseValue](outs[o]);
  }
  if (carried) api[ReleaseValue](carried);
}

static int chosen(const char *name, const char *words) {
  char copy[1024];
  if (!*words) return 1;
  snprintf(copy, sizeof copy, "%s", words);
  for (char *rest = copy, *w; (w = strtok_r(rest, "|", &rest));)
    if (strstr(name, w)) return 1;
  return 0;
}

static void *start(void) {
  void *options;
  chk(api[CreateSessionOptions](&options));
  chk(api[SetGraphOpt](options, 99));
  chk(api[SetIntra](options, 1));
  chk(api[SetInter](options, 1));
  return options;
}

static double median_time(double budget) {
  static double all[5000];
  long n = 1;
  int m = 0;
  once();
  for (double end = now() + 0.2;;) {
    double t0 = now();
    for (long i = 0; i < n; i++) once();
    double dt = now() - t0;
    if (dt >= 1e-3 && now() >= end) break;
    if (dt < 1e-3) n *= 2;
  }
  for (double end = now() + budget; (now() < end && m < 5000) || m < 5;) {
    double t0 = now();
    for (long i = 0; i < n; i++) once();
    all[m++] = (now() - t0) / n;
  }
  qsort(all, m, sizeof *all, cmp);
  return all[m / 2];
}

int main(int argc, char **argv) {
  if (argc < 3) return fprintf(stderr, "usage: peer_ort LIBRARY JOBS [words] [budget]\n"), 2;
  const char *words = argc > 3 ? argv[3] : "";
  double budget = argc > 4 ? atof(argv[4]) : 0.5;
  void *h = dlopen(argv[1], RTLD_NOW), *alloc;
  if (!h) return fprintf(stderr, "%s\n", dlerror()), 1;
  struct { fn *(*get)(uint32_t); const char *(*version)(void); } *base = ((void *(*)(void))dlsym(h, "OrtGetApiBase"))();
  api = base->get(14);
  chk(api[CreateEnv](3, "bench", &env));
  chk(api[CreateCpuMemoryInfo](1, 0, &mem));
  chk(api[GetAllocator](&alloc));
  FILE *f = fopen(argv[2], "r");
  if (!f) return perror(argv[2]), 1;
  for (char line[2048]; fgets(line, sizeof line, f);) {
    char *name = strtok(line, " \t\n"), *loop = NULL;
    if (!name || *name == '#' || !chosen(name, words)) continue;
    char *model = strtok(NULL, " \t\n");
    double per = atof(strtok(NULL, " \t\n"));
    nin = 0;
    loop_in = loop_out = pos_in = -1;
    for (char *w; (w = strtok(NULL, " \t\n"));) {
      if (!strcmp(w, "loop")) { loop = strtok(NULL, " \t\n"); break; }
      parse_input(w);
    }
    chk(api[CreateSession](env, model, start(), &session));
    chk(api[SessionOutputCount](session, &nout));
    for (size_t i = 0; i < nout; i++) chk(api[SessionOutputName](session, i, alloc, &outname[i]));
    if (loop) {
      char *from = strchr(loop, '<'), *steps = strchr(loop, ':');
      *from++ = 0;
      *steps++ = 0;
      loop_steps = atoi(steps);
      for (int i = 0; i < nin; i++) if (!strcmp(in[i].name, loop)) loop_in = i;
      for (size_t i = 0; i < nout; i++) if (!strcmp(outname[i], from)) loop_out = (int)i;
    }
    printf("{\"peer\":\"ort\",\"workload\":\"%s\",\"seconds\":%.6g}\n", name, median_time(budget) / per);
    fflush(stdout);
    api[ReleaseSession](session);
  }
  return 0;
}
