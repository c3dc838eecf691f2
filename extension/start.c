/*-------------------------------------------------------------------------
 *
 * start.c
 *	  How the background worker comes to run.
 *
 * With shared_preload_libraries it is one of the server's own.  Without, a
 * session that has this library starts it: CREATE EXTENSION, the parameter
 * that turns pooling on, or, behind a restart of the server, the first session
 * with session_preload_libraries.  There is one at a time: it holds a lock on a
 * file, of which the kernel knows the end.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/fd.h"

#include "weir.h"

PG_FUNCTION_INFO_V1(weir_start);

static bool preloaded = false;	/* by the postmaster: it starts the worker */


/* Where the pooler's files are: nobody else may look into it */
const char *
weir_folder(void)
{
	static char path[MAXPGPATH];

	if (path[0] == '\0')
		snprintf(path, sizeof(path), "%s/weir", DataDir);
	return path;
}

/* A file in it; up to the next call */
const char *
weir_file(const char *name)
{
	static char path[MAXPGPATH];

	snprintf(path, sizeof(path), "%s/%s", weir_folder(), name);
	return path;
}

static void
lock_of(struct flock *lock)
{
	memset(lock, 0, sizeof(*lock));
	lock->l_type = F_WRLCK;
	lock->l_whence = SEEK_SET;
}

/* Become the one worker there is.  The lock ends with this process. */
bool
weir_take_place(void)
{
	struct flock lock;
	int			fd;

	if (mkdir(weir_folder(), S_IRWXU) < 0 && errno != EEXIST)
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not create directory \"%s\": %m", weir_folder())));
	if (chmod(weir_folder(), S_IRWXU) < 0)
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not set permissions of directory \"%s\": %m", weir_folder())));
	fd = open(weir_file("worker.lock"), O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
	if (fd < 0)
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", weir_file("worker.lock"))));
	lock_of(&lock);
	return fcntl(fd, F_SETLK, &lock) == 0;
}

/* Is there one?  Asking takes no lock. */
static bool
is_running(void)
{
	struct flock lock;
	int			fd = open(weir_file("worker.lock"), O_RDWR | O_CLOEXEC);
	bool		runs;

	if (fd < 0)
		return false;
	lock_of(&lock);
	runs = fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
	close(fd);
	return runs;
}

static void
describe(BackgroundWorker *worker)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	/* On a standby too, and on through its promotion */
	worker->bgw_start_time = BgWorkerStart_ConsistentState;
	worker->bgw_restart_time = 1;
	strlcpy(worker->bgw_library_name, "weir", sizeof(worker->bgw_library_name));
	strlcpy(worker->bgw_function_name, "weir_worker_main", sizeof(worker->bgw_function_name));
	strlcpy(worker->bgw_name, "weir", sizeof(worker->bgw_name));
	strlcpy(worker->bgw_type, "weir", sizeof(worker->bgw_type));
}

/* False: there is no place for it */
static bool
start_worker(BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker;

	describe(&worker);
	worker.bgw_notify_pid = handle != NULL ? MyProcPid : 0;
	return RegisterDynamicBackgroundWorker(&worker, handle);
}

/* Called as parameters change, so it must not throw */
void
weir_start_worker_if_none(void)
{
	static bool told = false;

	if (preloaded || !IsUnderPostmaster || IsBinaryUpgrade ||
		MyProcPort == NULL || is_running())
		return;
	if (!start_worker(NULL) && !told)
	{
		told = true;
		ereport(LOG,
				(errmsg("weir: there is no place for a background worker"),
				 errhint("You might need to increase max_worker_processes.")));
	}
}

/*
 * weir.start()
 *	  Start the worker if there is none, and wait until it runs.
 */
Datum
weir_start(PG_FUNCTION_ARGS)
{
	BackgroundWorkerHandle *handle;
	pid_t		pid;

	if (preloaded || IsBinaryUpgrade || is_running())
		PG_RETURN_VOID();
	if (!start_worker(&handle))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("there is no place for a background worker"),
				 errhint("You might need to increase max_worker_processes.")));
	if (WaitForBackgroundWorkerStartup(handle, &pid) != BGWH_STARTED)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not start a background worker"),
				 errhint("More details may be available in the server log.")));
	PG_RETURN_VOID();
}

void
weir_init_start(void)
{
	BackgroundWorker worker;

	if (!process_shared_preload_libraries_in_progress)
		return;
	preloaded = true;
	if (IsBinaryUpgrade)
		return;
	describe(&worker);
	RegisterBackgroundWorker(&worker);
}
