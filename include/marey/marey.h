/* Marey's C ABI: plain types and sized structs, for other languages and for programs that dlopen libmarey.
 *
 * Rules that hold for every function: it may be called from any thread, in any state; it never throws, never aborts and
 * never blocks on I/O unless its comment says so. Functions that return an int return 0 (MAREY_OK) or a marey_code, and
 * leave the message in marey_last_error() of the calling thread. Strings are UTF-8 and are copied. Structs begin with
 * `size = sizeof(struct)`, so that later versions can grow them. */
#ifndef MAREY_MAREY_H
#define MAREY_MAREY_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MAREY_API __attribute__((visibility("default")))
#else
#define MAREY_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum marey_code {
  MAREY_OK = 0,
  MAREY_INVALID_ARGUMENT = 1,
  MAREY_NOT_FOUND = 2,
  MAREY_IO = 3,
  MAREY_UNAVAILABLE = 4,
  MAREY_DAMAGED = 5,
  MAREY_EXHAUSTED = 6,
  MAREY_INTERNAL = 7,
} marey_code;

/* What a schedule counts. Units nest: a train step holds mini-batches, a mini-batch holds micro-batches. */
typedef enum marey_unit { MAREY_TRAIN_STEP = 0, MAREY_MINI_BATCH = 1, MAREY_MICRO_BATCH = 2 } marey_unit;

typedef enum marey_action {
  MAREY_NONE = 0,
  MAREY_WARMUP = 1,
  MAREY_RECORD = 2,
  MAREY_RECORD_AND_SAVE = 3
} marey_action;

/* Counted in one unit; the meaning is torch.profiler.schedule's. active = 0: no schedule, record from start to stop. */
typedef struct marey_schedule {
  size_t size;
  int64_t skip_first, wait, warmup, active, repeat, skip_first_wait;
} marey_schedule;

#define MAREY_UNKNOWN INT64_MIN /* a rank, world size or train step that is not known */

typedef struct marey_profiler_options {
  size_t size;
  const marey_schedule* schedule; /* NULL: no schedule */
  marey_unit unit;
  const char* role;            /* NULL or "": none */
  const char* out;             /* folder; NULL: $MAREY_OUT, else "marey-traces" */
  const char* const* contents; /* "outline", "cpu", "shapes", ...; count 0: {"cpu"} */
  size_t contents_count;
  const int64_t* steps; /* train steps that the schedule applies to; count 0: all */
  size_t steps_count;
  const char* const*
      stages; /* stages that the schedule applies to, besides those begun as scheduled; count 0: none named */
  size_t stages_count;
  int64_t rank, world_size; /* MAREY_UNKNOWN: $RANK and $WORLD_SIZE, else 0 of 1 */
  const char* parallel;     /* e.g. "tp1-pp0-dp2"; NULL: unknown */
  const char* job;          /* NULL: $SLURM_JOB_ID and kin, else empty */
  int no_skeleton;          /* non-zero: no skeleton events and no skeleton trace */
  int quiet;                /* non-zero: the plan and the closing summary are not logged */
} marey_profiler_options;

typedef struct marey_profiler marey_profiler;

MAREY_API const char* marey_version(void);
MAREY_API const char* marey_last_error(void);

/* Replaces the sink of Marey's own messages (default: one line on stderr). NULL restores the default. */
MAREY_API void marey_set_log(void (*sink)(void* user, const char* line, size_t size), void* user);

/* Errors: a bad schedule, an unknown content, an unwritable folder (this call creates it). Contents that are known but
 * not supported yet are named once in the log and left out. */
MAREY_API int marey_profiler_create(const marey_profiler_options* options, marey_profiler** out);
/* Stops it if it runs, waits (bounded, 10 s) for its files, and frees the handle. */
MAREY_API void marey_profiler_destroy(marey_profiler* profiler);

/* Takes the lease. A second start of a running profiler changes nothing. train_step: MAREY_UNKNOWN counts from 0
 * without naming steps. */
MAREY_API int marey_profiler_start(marey_profiler* profiler, int64_t train_step);
/* Ends one unit of the profiler's schedule; without a change ahead this is an increment and a compare. */
MAREY_API void marey_profiler_step(marey_profiler* profiler);
/* Ends one unit of any kind; numbers below it restart. */
MAREY_API void marey_profiler_tick(marey_profiler* profiler, marey_unit unit);
/* The loop over units is over: unless another tick comes before stop(), the unit that the last tick began never
 * existed, and an open window that holds no whole unit is dropped. Numbers go on in the next loop. Stages end their
 * units by themselves. */
MAREY_API void marey_profiler_end_units(marey_profiler* profiler);
/* failed: non-zero when an exception is leaving the loop, so that the unit in flight is never counted as whole. Returns
 * after stamps and flags; files are sealed by the drain thread. Safe twice, from any thread, in any state. */
MAREY_API int marey_profiler_stop(marey_profiler* profiler, int failed);

/* Stages nest. scheduled: units are counted in it, from 0. A stage is ended by the name it was begun with. */
MAREY_API void marey_profiler_stage_begin(marey_profiler* profiler, const char* name, int scheduled);
MAREY_API void marey_profiler_stage_end(marey_profiler* profiler, const char* name);

/* Blocks until every window that is closed is sealed and every skeleton trace of an ended lease is, at most timeout_s
 * seconds (negative: no limit). MAREY_EXHAUSTED: the time ran out. */
MAREY_API int marey_profiler_wait(marey_profiler* profiler, double timeout_s);

typedef struct marey_window {
  size_t size;
  uint64_t sequence;  /* 1, 2, ... in order of sealing, per profiler; the argument `after` of next_window */
  const char* path;   /* valid until the profiler is destroyed */
  const char* error;  /* "" or why the file could not be written whole */
  const char* stage;  /* "" or the scheduled stage it lies in */
  int is_skeleton;    /* the trace of a lease rather than a window */
  int complete;       /* every planned unit is whole */
  int64_t train_step; /* MAREY_UNKNOWN: none */
  marey_unit unit;
  int64_t first_unit, last_unit, recorded_units, planned_units; /* planned 0: no schedule */
  uint64_t events, lost, bytes;
} marey_window;

/* The first sealed trace of this profiler whose sequence is greater than `after`; waits up to timeout_s (0: no wait).
 * Returns MAREY_OK, MAREY_EXHAUSTED (time ran out), or MAREY_NOT_FOUND (none, and none can come: the profiler is
 * stopped and all is sealed). */
MAREY_API int marey_profiler_next_window(marey_profiler* profiler, uint64_t after, double timeout_s, marey_window* out);

typedef struct marey_status {
  size_t size;
  int running;
  marey_action action;        /* of the current unit */
  int64_t train_step;         /* MAREY_UNKNOWN: none */
  const char* stage;          /* innermost open stage, "" for none */
  int64_t unit_number;        /* of the schedule's unit; -1: no unit is current */
  uint64_t units_seen;        /* ticks of the schedule's unit in this lease */
  int64_t first_planned_unit; /* first unit that the schedule would record; -1: none */
  uint64_t windows_open, windows_sealed, windows_failed;
  uint64_t events, lost;   /* over all windows of this profiler */
  uint64_t starts_ignored; /* start() of a running profiler */
  const char* message;     /* a sentence for people, e.g. "nothing was recorded because ..." */
} marey_status;
/* Strings are valid until the next call of this function on this thread. */
MAREY_API int marey_profiler_status(marey_profiler* profiler, marey_status* out);

/* Ends every lease of the process and waits (bounded) for all files; what atexit does. why: "exit", "signal", ... */
MAREY_API void marey_finish(double timeout_s);

/* ---- Ranges and marks ---- */

/* Id of a (name, category) pair, for ever. category NULL: "user". 0 is never returned. */
MAREY_API uint32_t marey_intern(const char* name, size_t name_size, const char* category);

typedef enum marey_arg_type {
  MAREY_ARG_INT = 0,
  MAREY_ARG_DOUBLE = 1,
  MAREY_ARG_BOOL = 2,
  MAREY_ARG_STRING = 3
} marey_arg_type;
typedef struct marey_arg {
  uint32_t key; /* marey_intern() */
  marey_arg_type type;
  union {
    int64_t i;
    double d;
    const char* s;
  } value;
  size_t string_size;
} marey_arg;

/* 1 when a range that begins now would be recorded. */
MAREY_API int marey_enabled(void);
/* Returns 0 when nothing was recorded (then do not call end), else a token for marey_range_end. */
MAREY_API uint32_t marey_range_begin(uint32_t name, const marey_arg* args, size_t args_count);
MAREY_API void marey_range_end(uint32_t token);
MAREY_API void marey_mark(uint32_t name, const marey_arg* args, size_t args_count);
/* Ranges that may cross others or end on another thread (coroutines, callbacks). Returns an id, 0 when not recorded. */
MAREY_API uint64_t marey_async_begin(uint32_t name, const marey_arg* args, size_t args_count);
MAREY_API void marey_async_end(uint64_t id, uint32_t name);

/* ---- Schedule, without a profiler ---- */

MAREY_API int marey_schedule_validate(const marey_schedule* schedule);
/* Action of unit `number` (>= 0) of a valid schedule. */
MAREY_API marey_action marey_schedule_action(const marey_schedule* schedule, int64_t number);

/* ---- Sources ---- */

/* A producer of detail events, e.g. PyTorch's observer. Its functions are called without any lock of Marey's held, one
 * call at a time. */
typedef struct marey_source {
  size_t size;
  const char* name; /* static */
  void* user;
  /* Makes the events of `class_mask` (bits of EventClass) flow from now on; `shapes` asks for input shapes. Called
   * again when the wanted mask changes; mask 0 disarms and leaves nothing behind. Returns 0, or a marey_code with the
   * reason. */
  int (*arm)(void* user, uint32_t class_mask, int shapes, char* reason, size_t reason_size);
} marey_source;

/* The struct must live for ever. Registering a name again replaces nothing and returns MAREY_INVALID_ARGUMENT. */
MAREY_API int marey_register_source(const marey_source* source);
/* Tells why a source is absent, for `info` and `doctor` ("not built for PyTorch 2.14", ...). */
MAREY_API void marey_source_unavailable(const char* name, const char* reason);
/* dlopens a source library and calls its exported `int marey_source_init(void)`. */
MAREY_API int marey_source_load(const char* path);

#ifdef __cplusplus
}
#endif
#endif /* MAREY_MAREY_H */
