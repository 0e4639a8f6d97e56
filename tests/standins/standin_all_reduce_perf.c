/* A stand-in for nccl-tests: the text of version 2.17 out of a model of the network, with real MPI between its ranks.
 *
 * Built with `mpicc -O2 standin_all_reduce_perf.c -lm`; the name it is called by is the test it plays. The ranks meet in
 * a real MPI barrier twice at every size, so one that is lost or stands still really holds up the others.
 *
 * With $STANDIN_MEET, a folder that all nodes share, its ranks await each other there before their first words.
 *
 * The model is a file ($STANDIN_FABRIC, else /etc/standin-fabric), the same on every node, one statement a line:
 *   provider efa|ib   rails N   nic_gbs G   nvlink_gbs G   noise SHARE   pace_ms MS (how long a size really takes)
 *   rack NODE NAME          which rack a node stands in
 *   uplink RACK SHARE       traffic into and out of a rack has this share of its speed left
 *   slow NODE RAIL SHARE    a rail has this share of its speed left
 *   dead NODE RAIL          a rail is not there
 *   tcp NODE                the node finds no fabric and uses sockets
 *   hang NODE BYTES         from this size on its ranks take no part
 *   wrong NODE BYTES        from this size on it spoils values
 *   crash NODE BYTES        at this size a rank of it gives up with an error
 */
#include <fcntl.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NAME = 64, MOST_FAULTS = 64, MOST_RAILS = 32, MOST_RANKS = 4096 };

typedef struct { char kind[16], node[NAME], what[NAME]; double number; } Fault;

static struct {
  char provider[8];
  int rails;
  double nic_gbs, nvlink_gbs, noise, pace_ms;
  Fault faults[MOST_FAULTS];
  int count;
} model = {.provider = "efa", .rails = 8, .nic_gbs = 50, .nvlink_gbs = 480, .noise = 0.01, .pace_ms = 20};

static char me[NAME], names[MOST_RANKS][NAME];
static int rank, ranks, gpus = 1, check = 1, slowest, color, in_group, of_group, iters = 20, warmup = 5, per_iteration;
static const char *datatype = "float", *op = "sum";
static long first = 32L << 20, last = 32L << 20, step = 1;
static MPI_Comm group;

/* What each test prints in the columns redop and root, and what it makes of a time: busbw = algbw * share. */
enum { WHOLE, TWICE, OTHERS };  /* all of it · sent and taken by each · all but a rank's own part */
typedef struct { const char *program, *redop, *root; int share, parts, in_place; } Test;
static const Test tests[] = {
  {"all_reduce_perf", "sum", "-1", TWICE, 0, 1},     {"all_gather_perf", "none", "-1", OTHERS, 1, 1},
  {"reduce_scatter_perf", "sum", "-1", OTHERS, 1, 1}, {"alltoall_perf", "none", "-1", OTHERS, 1, 0},
  {"broadcast_perf", "none", "0", WHOLE, 0, 1},      {"reduce_perf", "sum", "0", WHOLE, 0, 1},
  {"gather_perf", "none", "0", OTHERS, 1, 1},        {"scatter_perf", "none", "0", OTHERS, 1, 1},
  {"sendrecv_perf", "sum", "-1", WHOLE, 0, 0},
};
static const Test *test = tests;

static void read_model(void) {
  const char *path = getenv("STANDIN_FABRIC");
  FILE *file = fopen(path ? path : "/etc/standin-fabric", "r");
  char line[256], word[16], one[NAME], two[NAME], three[NAME];
  while (file && fgets(line, sizeof line, file)) {
    int found = sscanf(line, "%15s %63s %63s %63s", word, one, two, three);
    if (found == 2 && !strcmp(word, "provider")) snprintf(model.provider, sizeof model.provider, "%.7s", one);
    if (found >= 2 && model.count < MOST_FAULTS) {
      Fault *fault = &model.faults[model.count++];
      snprintf(fault->kind, sizeof fault->kind, "%s", word);
      snprintf(fault->node, NAME, "%s", one);
      snprintf(fault->what, NAME, "%s", found > 2 ? two : "");
      fault->number = found > 3 ? atof(three) : 0;
    }
    if (sscanf(line, "rails %d", &model.rails) == 1 && model.rails > MOST_RAILS) model.rails = MOST_RAILS;
    sscanf(line, "nic_gbs %lf", &model.nic_gbs);
    sscanf(line, "nvlink_gbs %lf", &model.nvlink_gbs);
    sscanf(line, "noise %lf", &model.noise);
    sscanf(line, "pace_ms %lf", &model.pace_ms);
  }
  if (file) fclose(file);
}

static const Fault *fault(const char *kind, const char *node) {
  for (int i = 0; i < model.count; i++)
    if (!strcmp(model.faults[i].kind, kind) && !strcmp(model.faults[i].node, node)) return &model.faults[i];
  return NULL;
}

static int strikes(const char *kind, const char *node, long bytes) {
  const Fault *found = fault(kind, node);
  return found && bytes >= atol(found->what);
}

/* The only adapter that the environment allows, or -1 for all. */
static int only_rail(void) {
  const char *asked = getenv(strcmp(model.provider, "ib") ? "FI_EFA_IFACE" : "NCCL_IB_HCA");
  size_t digits = asked ? strlen(asked) : 0;
  while (digits && asked[digits - 1] >= '0' && asked[digits - 1] <= '9') digits--;
  return asked && asked[digits] ? atoi(asked + digits) : -1;
}

/* The share of its speed that a rail of a node has; 0 where it is not there. */
static double rail_share(const char *node, int rail) {
  double share = 1;
  for (int i = 0; i < model.count; i++) {
    const Fault *f = &model.faults[i];
    if (strcmp(f->node, node) || atoi(f->what) != rail) continue;
    if (!strcmp(f->kind, "dead")) return 0;
    if (!strcmp(f->kind, "slow")) share = f->number;
  }
  return share;
}

static int uses_sockets(const char *node) {
  int only = only_rail();
  return fault("tcp", node) != NULL || (only >= 0 && rail_share(node, only) == 0);
}

/* What a node brings to a ring: as many rails as it has, all as slow as the slowest. GB/s. */
static double node_gbs(const char *node) {
  double worst = 1;
  int there = 0, only = only_rail();
  if (uses_sockets(node)) return 1.2;
  for (int rail = 0; rail < model.rails; rail++) {
    double share = only < 0 || rail == only ? rail_share(node, rail) : 0;
    if (share > 0) there++, worst = share < worst ? share : worst;
  }
  return there * worst * model.nic_gbs;
}

static const char *rack_of(const char *node) {
  const Fault *rack = fault("rack", node);
  return rack ? rack->what : "";
}

/* The bandwidth that a ring over the group's nodes would have without end effects, GB/s. */
static double limit_gbs(int nodes) {
  const char *algorithm = getenv("NCCL_ALGO");
  double least = 1e9;
  if (nodes == 1) return model.nvlink_gbs;
  for (int i = 0; i < of_group; i++) {
    double here = node_gbs(names[i]);
    const Fault *uplink = fault("uplink", rack_of(names[i]));
    for (int j = 0; uplink && j < of_group; j++)
      if (strcmp(rack_of(names[j]), rack_of(names[i]))) here *= atof(uplink->what), j = of_group;
    least = here < least ? here : least;
  }
  /* Between two nodes a tree moves less over the network than busbw counts. */
  if (nodes == 2 && !(algorithm && !strcasecmp(algorithm, "Ring"))) least = fmin(least * 1.25, model.nvlink_gbs);
  return least;
}

static int nodes_of_group(void) {
  int nodes = 0;
  for (int i = 0; i < of_group; i++) {
    int known = 0;
    for (int j = 0; j < i; j++) known |= !strcmp(names[i], names[j]);
    nodes += !known;
  }
  return nodes;
}

static double noisy(void) {
  double sum = -6;
  for (int i = 0; i < 12; i++) sum += drand48();
  return 1 + model.noise * sum;
}

static void nap(double ms) {
  struct timespec time = {(time_t)(ms / 1000), (long)(fmod(ms, 1000) * 1e6)};
  nanosleep(&time, NULL);
}

/* Waits as MPI_Wait does, but leaves the processor to others meanwhile. */
static void meet(MPI_Request request) {
  int met = 0;
  for (MPI_Test(&request, &met, MPI_STATUS_IGNORE); !met; MPI_Test(&request, &met, MPI_STATUS_IGNORE)) nap(1);
}

static void barrier(void) {
  MPI_Request request;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  meet(request);
}

/* What each rank has, by rank, in `all` (at rank 0 alone where `everywhere` is 0). */
static void gather(const void *mine, int bytes, void *all, MPI_Comm among, int everywhere) {
  MPI_Request request;
  if (everywhere) MPI_Iallgather(mine, bytes, MPI_CHAR, all, bytes, MPI_CHAR, among, &request);
  else MPI_Igather(mine, bytes, MPI_CHAR, all, bytes, MPI_CHAR, 0, among, &request);
  meet(request);
}

static void info(int device, const char *text) { printf("%s:%d:%d [%d] NCCL INFO %s\n", me, getpid(), getpid() + 40, device, text); }

static void say_network(int device) {
  char text[512];
  int there = 0, only = only_rail();
  size_t end = 0;
  for (int rail = 0; rail < model.rails; rail++) there += (only < 0 || rail == only) && rail_share(me, rail) > 0;
  if (uses_sockets(me)) {
    info(device, "NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin.");
    info(device, "NET/IB : No device found.");
    info(device, "NET/Socket : Using [0]eth0:10.0.0.1<0>");
    info(device, "Using network Socket");
  } else if (!strcmp(model.provider, "ib")) {
    info(device, "NET/Plugin: Could not find: libnccl-net.so. Using internal net plugin.");
    for (int rail = 0, n = 0; rail < model.rails; rail++)
      if ((only < 0 || rail == only) && rail_share(me, rail) > 0)
        end += snprintf(text + end, sizeof text - end, " [%d]mlx5_%d:1/IB", n++, rail);
    printf("%s:%d:%d [%d] NCCL INFO NET/IB : Using%s [RO]; OOB eth0:10.0.0.1<0>\n", me, getpid(), getpid() + 40, device, text);
    info(device, "Using network IB");
  } else {
    info(device, "NET/OFI Initializing aws-ofi-nccl 1.17.1");
    snprintf(text, sizeof text, "NET/OFI Selected provider is efa, fabric is efa-direct (found %d nics)", there);
    info(device, text);
    for (int rail = 0, groups = model.rails > 8 ? 8 : model.rails; rail < model.rails; rail++)
      if ((only < 0 || rail == only) && rail_share(me, rail) > 0) {
        snprintf(text, sizeof text, "NET/OFI NIC group %d device #%d 0000:%02x:00.0", rail % groups, rail / groups, 0x51 + rail);
        info(device, text);
      }
    info(device, "Using network Libfabric");
  }
}

static void say_init(void) {
  const char *debug = getenv("NCCL_DEBUG"), *algorithm = getenv("NCCL_ALGO");
  if (!debug || strcasecmp(debug, "INFO")) return;
  for (int g = 0; g < gpus; g++) {
    int device = g, nranks = of_group * gpus, mine = in_group * gpus + g;
    char text[256];
    if (gpus == 1) for (int i = 0; i < in_group; i++) device += !strcmp(names[i], me);
    info(device, "Bootstrap: Using eth0:10.0.0.1<0>");
    if (mine == 0) info(device, "NCCL version 2.28.9+cuda13.0");
    say_network(device);
    if (algorithm) snprintf(text, sizeof text, "NCCL_ALGO set by environment to %s", algorithm), info(device, text);
    snprintf(text, sizeof text, "Connected all rings, use ring PXN 0 GDR %d", !uses_sockets(me));
    info(device, text);
    snprintf(text, sizeof text, "ncclCommInitRank comm 0x55e rank %d nranks %d cudaDev %d nvmlDev %d busId %d000 commId 0x48 - Init COMPLETE",
             mine, nranks, device, device, device + 1);
    info(device, text);
  }
}

static void say_devices(void) {
  char mine[8192], *all = NULL;
  size_t end = 0;
  int local = 0;
  for (int i = 0; i < rank; i++) local += !strcmp(names[i], me);
  for (int g = 0; g < gpus; g++) {
    int device = local * gpus + g;
    end += snprintf(mine + end, sizeof mine - end, "#  Rank %2d Group %2d Pid %6d on %10s device %2d [0000:%02x:00] NVIDIA H200\n",
                    rank * gpus + g, color, getpid(), me, device, 0x53 + device);
  }
  if (rank == 0) all = malloc(sizeof mine * (size_t)ranks);
  gather(mine, sizeof mine, all, MPI_COMM_WORLD, 0);
  for (int i = 0; rank == 0 && i < ranks; i++) fputs(all + sizeof mine * (size_t)i, stdout);
  free(all);
}

static void give_up(void) {
  printf("\n%s:%d:%d [0] transport/net_ib.cc:1292 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<34567> with "
         "status=12 opcode=129 len=0 vendor err 129 (Recv)\n", me, getpid(), getpid() + 41);
  printf("%s:%d:%d [0] NCCL INFO transport/net.cc:1298 -> 6\n", me, getpid(), getpid() + 41);
  printf("%s: Test NCCL failure %.*s.cu:53 'remote process exited or there was a network error / '\n", me,
         (int)(strlen(test->program) - strlen("_perf")), test->program);
  printf(" .. %s pid %d: Test failure common.cu:440\n", me, getpid());
  fflush(stdout);
  _exit(3);
}

static void say_timing(double us, long bytes, double factor, long wrong, int checked) {
  char time[16];
  double alg = bytes / us / 1e3;
  snprintf(time, sizeof time, us >= 10000 ? "%7.0f" : us >= 100 ? "%7.1f" : "%7.2f", us);
  if (checked) printf("  %7s  %6.2f  %6.2f  %5ld", time, alg, alg * factor, wrong);
  else printf("  %7s  %6.2f  %6.2f    N/A", time, alg, alg * factor);
  if (per_iteration) printf("  %7.2f  %7.2f  %7.2f  %7.2f", us * 0.98, us * 1.04, us * 1.03, 1.2);
  fflush(stdout);
}

static double bus_factor(void) {
  double n = of_group * gpus;
  return test->share == WHOLE ? 1 : test->share == TWICE ? fmax(1, 2 * (n - 1) / n) : fmax((n - 1) / n, n == 1);
}

/* One half of a row. Returns the busbw it printed: of the slowest rank where -a 3 asks for it, else of rank 0's group. */
static double measure(long bytes, double limit, int nodes, int in_place, long *wrong) {
  double factor = bus_factor(), mine = (12 + 6.0 * nodes + bytes * factor / (limit * 1e3)) * noisy(), us = mine;
  MPI_Request request;
  int checked = check && (test->in_place || !in_place);  /* some cannot be done in place: it is timed, not checked */
  long bad = checked && strikes("wrong", me, bytes) ? 96 : 0;
  barrier();
  nap(model.pace_ms / 2);
  barrier();
  if (slowest) MPI_Iallreduce(&mine, &us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &request), meet(request);
  MPI_Iallreduce(&bad, wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &request);
  meet(request);
  if (rank == 0) say_timing(us, bytes, factor, *wrong, checked);
  return bytes / us / 1e3 * factor;
}

static long size_of(const char *text) {
  char *unit;
  double number = strtod(text, &unit);
  return (long)(number * (strchr("gG", *unit) && *unit ? 1L << 30 : strchr("mM", *unit) && *unit ? 1L << 20
                          : strchr("kK", *unit) && *unit ? 1L << 10 : 1));
}

static long size_of_type(void) {
  return !strcmp(datatype, "double") ? 8 : !strcmp(datatype, "half") || !strcmp(datatype, "bfloat16") ? 2 : 4;
}

static void read_arguments(int argc, char **argv) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const char *value = argv[i + 1];
    switch (argv[i][1]) {
      case 'b': first = size_of(value); break;
      case 'e': last = size_of(value); break;
      case 'f': step = atol(value); break;
      case 'g': gpus = atoi(value); break;
      case 'c': check = atoi(value); break;
      case 'a': slowest = atoi(value) == 3; break;
      case 'n': iters = atoi(value); break;
      case 'w': warmup = atoi(value); break;
      case 'd': datatype = value; break;
      case 'o': op = value; break;
      case 'I': per_iteration = atoi(value); break;
    }
  }
}

/* NCCL_TESTS_SPLIT: the ranks of a group run on their own, at the same time as the others. */
static void split(void) {
  const char *asked = getenv("NCCL_TESTS_SPLIT");
  int number = asked && strlen(asked) > 3 ? atoi(asked + 3) : 0;
  if (number && !strncasecmp(asked, "DIV", 3)) color = rank / number;
  if (number && !strncasecmp(asked, "MOD", 3)) color = rank % number;
  MPI_Comm_split(MPI_COMM_WORLD, color, rank, &group);
  MPI_Comm_rank(group, &in_group);
  MPI_Comm_size(group, &of_group);
}

/* Slurm lets a rank out of MPI_Init while others are still in it, and Open MPI 4.1 crashes where it is spoken to there
 * (open-mpi/ompi#12495): on a busy machine, one launch in ten. */
static void await_all(void) {
  const char *folder = getenv("STANDIN_MEET"), *job = getenv("SLURM_JOB_ID"), *number = getenv("SLURM_STEP_ID");
  char path[512];
  struct stat seen = {0};
  if (!folder || !job || !number) return;
  snprintf(path, sizeof path, "%s/%s.%s", folder, job, number);
  int place = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (place < 0 || write(place, ".", 1) != 1) { perror(path); exit(1); }
  while (!fstat(place, &seen) && seen.st_size < ranks) usleep(10000);
  close(place);
}

int main(int argc, char **argv) {
  const char *program = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
  double sum = 0;
  long halves = 0, all_wrong = 0;
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) if (!strcmp(tests[i].program, program)) test = &tests[i];
  setlinebuf(stdout);
  read_model();
  read_arguments(argc, argv);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  await_all();
  barrier(); /* who waits in what blocks, as MPI_Comm_split, takes a processor from those that are still starting */
  gethostname(me, NAME - 1);
  srand48(getpid() ^ time(NULL));
  split();
  const char *columns = per_iteration ? "    i_min    i_max    i_p99    i_cv%" : "";
  if (rank == 0) {
    printf("# nccl-tests version 2.17.9 nccl-headers=22809 nccl-library=22809\n# Collective test starting: %s\n", program);
    printf("# nThread 1 nGpus %d minBytes %ld maxBytes %ld step: %ld(factor) warmup iters: %d iters: %d agg iters: 1 "
           "validation: %d graph: 0\n%s#\n# Using devices\n", gpus, first, last, step, warmup, iters, check,
           per_iteration ? "# Per-Iteration Report: CUDA event timing; i_* uses max over process rows \n" : "");
  }
  gather(me, NAME, names, MPI_COMM_WORLD, 1);
  say_devices();
  gather(me, NAME, names, group, 1);
  say_init();
  barrier();
  if (rank == 0)
    printf("#\n#                                                              out-of-place                       in-place          \n"
           "#       size         count      type   redop    root     time   algbw   busbw  #wrong%s     time   algbw   busbw  #wrong%s \n"
           "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         \n",
           columns, columns);
  int nodes = nodes_of_group();
  double limit = limit_gbs(nodes);
  for (long asked = first; asked <= last; asked *= step) {
    /* Where each rank has a part, it is a whole number of 16 bytes: of a few bytes nothing is left. */
    long wrong = 0, parts = test->parts ? of_group * gpus : 1, bytes = test->parts ? asked / parts / 16 * 16 * parts : asked;
    if (rank == 0) printf("%12ld  %12ld  %8s  %6s  %6s", bytes, bytes / size_of_type() / parts, datatype, strcmp(test->redop, "sum") ? test->redop : op, test->root);
    fflush(stdout);
    if (strikes("hang", me, bytes)) for (;;) pause();
    if (strikes("crash", me, bytes)) give_up();
    for (int half = 0; half < 2; half++, halves++, all_wrong += wrong > 0) sum += measure(bytes, limit, nodes, half, &wrong);
    if (rank == 0) printf("\n");
    if (step < 2) break;
  }
  if (rank == 0) {
    printf("# Out of bounds values : %ld %s\n# Avg bus bandwidth    : %g \n#\n", all_wrong, all_wrong ? "FAILED" : "OK", sum / halves);
    printf("# Collective test concluded: %s\n#\n", program);
  }
  barrier();
  MPI_Finalize();
  return all_wrong ? 1 : 0;
}
