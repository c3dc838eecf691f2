/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The background worker that keeps the pooler running.
 *
 * It writes the pooler's configuration, starts it where weir.enabled is on, has
 * it read again what has changed, starts it anew where it has ended, and ends
 * it with pooling or with the server.  No fault of the pooler is one of this
 * process: it shares nothing with it (child.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/procsignal.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "weir.h"

#define TICK_MS			100		/* how often roles are looked at */
#define LOOK_MS			1000	/* ... and what nobody tells us of */
#define RETRY_MS		5000	/* behind an error of ours */
#define STEADY_MS		10000	/* whoever ran for so long had no bad start */
#define BACKOFF_MIN_MS	100
#define BACKOFF_MAX_MS	30000
#define END_MS			5000	/* for the pooler to tell its clients */

PGDLLEXPORT void weir_worker_main(Datum arg);

static Child child = {.out = -1, .notify = -1, .console = -1};
static Child leaving = {.out = -1, .notify = -1, .console = -1};	/* its clients go over */
static char *fixed = NULL;		/* what the child has read as it started */
static char *place = NULL;		/* ... and where it is found */
static bool look_at_fixed = false;

static bool stale = true;		/* the files may say what is no more */
static bool reconnect = false;	/* its servers have begun before a change */
static bool reloaded = true;	/* the server has read its own again */
static TimestampTz expires = 0; /* a password does then */
static TimestampTz looked = 0;
static TimestampTz try_at = 0;	/* not before then */
static int	backoff_ms = 0;


static void
handle_sigchld(SIGNAL_ARGS)
{
	int			save_errno = errno;

	SetLatch(MyLatch);
	errno = save_errno;
}

static void
catalog_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	stale = true;
}

static TimestampTz
after(int milliseconds)
{
	return TimestampTzPlusMilliseconds(GetCurrentTimestamp(), milliseconds);
}

static bool
is_past(TimestampTz time)
{
	return GetCurrentTimestamp() >= time;
}

/* However this process ends */
static void
leave(int code, Datum arg)
{
	weir_signal_child(&leaving, SIGQUIT);
	weir_end_child(&child, END_MS);
	weir_end_child(&leaving, END_MS);
}

/*
 * Files
 */

/* Whatever fails here is tried again, and the pooler goes on meanwhile */
static bool
write_files(bool *changed)
{
	static MemoryContext context = NULL;
	MemoryContext before = CurrentMemoryContext;
	volatile bool ok = true;

	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "weir files",
										ALLOCSET_DEFAULT_SIZES);
	PG_TRY();
	{
		*changed = weir_write_files(reloaded, &expires, &reconnect);
	}
	PG_CATCH();
	{
		/* What was written up to then counts at the next time */
		MemoryContextSwitchTo(context);
		HOLD_INTERRUPTS();
		EmitErrorReport();
		AbortCurrentTransaction();
		FlushErrorState();
		RESUME_INTERRUPTS();
		ok = false;
		*changed = true;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(before);
	MemoryContextReset(context);
	return ok;
}

/* What it has read as it started, and what it was: another needs another start */
static char *
fixed_now(void)
{
	StringInfoData now;
	char	   *copy;

	initStringInfo(&now);
	weir_append_fixed(&now);
	weir_append_program(&now);
	copy = strdup(now.data);
	pfree(now.data);
	return copy;
}

/* One that takes over finds the other there */
static char *
place_now(void)
{
	char	   *text = psprintf("%s/%d", weir_text_setting("weir.unix_socket_dir"),
								weir_number_setting("weir.listen_port"));
	char	   *copy = strdup(text);

	pfree(text);
	return copy;
}

static bool
is_other(char *known, char *now)
{
	bool		other = known == NULL || now == NULL || strcmp(known, now) != 0;

	free(now);
	return other;
}

static void
remember_fixed(void)
{
	free(fixed);
	free(place);
	fixed = fixed_now();
	place = place_now();
}

/* Other sessions' changes to roles and databases are told as we look */
static void
look_at_catalogs(void)
{
	StartTransactionCommand();
	CommitTransactionCommand();
	if (is_past(looked))
	{
		/* Settings of databases and roles are told by nobody */
		stale = true;
		looked = after(LOOK_MS);
	}
	if (expires != 0 && is_past(expires))
		stale = true;
}

/* True: the files are right */
static bool
refresh_files(void)
{
	static bool owed = false;	/* files were written and nobody was told */
	bool		told = reloaded;
	bool		changed;

	if (!stale)
		return true;
	stale = false;
	if (!write_files(&changed))
	{
		stale = true;
		owed = true;
		try_at = after(RETRY_MS);
		return false;
	}
	/* Certificates are files of others: a reload is one for them, too */
	if (child.pid != 0 && (changed || told || owed))
		child.reload = true;
	owed = false;
	reloaded = false;
	return true;
}

/*
 * The pooler
 */

static void
told_to_end(int signal, int milliseconds)
{
	weir_signal_child(&child, signal);
	weir_signal_child(&leaving, signal);
	child.ending = signal;
	child.since = after(milliseconds);
}

/* Is the server to end once its clients have left? */
static bool
is_server_stopping(void)
{
	char		text[1024];
	int			fd = open("postmaster.pid", O_RDONLY | O_CLOEXEC);
	ssize_t		n;
	char	   *at = text;

	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[Max(n, 0)] = '\0';
	/* As pg_ctl reads it: the eighth line is the state (pidfile.h) */
	for (int i = 1; i < 8 && at != NULL; i++)
	{
		at = strchr(at, '\n');
		if (at != NULL)
			at++;
	}
	return at != NULL && strncmp(at, "stopping", 8) == 0;
}

static bool
is_wanted(void)
{
	return weir_enabled && (weir_standby || !RecoveryInProgress());
}

static void
take_back(void)
{
	int			notify = child.notify;

	ereport(WARNING, (errmsg("weir: the pooler that was to take over has ended, and the one before it goes on")));
	child = leaving;
	child.notify = notify;
	leaving.pid = 0;
	leaving.out = -1;
}

static void
look_at_end(void)
{
	int			status;
	TimestampTz began = child.since;
	bool		told = child.ending != 0;
	bool		was_ready = child.ready;

	if (weir_reap_child(&leaving, &status))
		ereport(LOG, (errmsg("weir: the pooler before it has nobody left, and has ended")));
	if (!weir_reap_child(&child, &status))
		return;
	if (!was_ready && leaving.pid != 0 && !told)
	{
		take_back();
		return;
	}
	if (told)
	{
		backoff_ms = 0;
		ereport(LOG, (errmsg("weir: the pooler has ended")));
		return;
	}
	if (TimestampDifferenceExceeds(began, GetCurrentTimestamp(), STEADY_MS))
		backoff_ms = 0;
	if (WIFSIGNALED(status))
		ereport(LOG, (errmsg("weir: the pooler was ended by signal %d, and is started again in %d ms",
							 WTERMSIG(status), backoff_ms)));
	else
		ereport(LOG, (errmsg("weir: the pooler has ended with code %d, and is started again in %d ms",
							 WEXITSTATUS(status), backoff_ms)));
	try_at = after(backoff_ms);
	backoff_ms = Min(Max(2 * backoff_ms, BACKOFF_MIN_MS), BACKOFF_MAX_MS);
}

static void
begin(void)
{
	weir_end_orphan();
	remember_fixed();
	if (weir_start_child(&child, false))
		return;
	backoff_ms = Min(Max(2 * backoff_ms, BACKOFF_MIN_MS), BACKOFF_MAX_MS);
	try_at = after(Max(backoff_ms, RETRY_MS));
}

/*
 * Another start, for what only a start reads, or another release's program.  A
 * process takes over from the one that runs, and its clients go over (-R); where
 * that one cannot be found, or is still taking over itself, they do not.
 */
static void
begin_anew(void)
{
	int			notify = child.notify;

	if (is_other(place, place_now()) || leaving.pid != 0)
	{
		ereport(LOG, (errmsg("weir: parameters have changed that only a start of the pooler reads")));
		told_to_end(SIGINT, END_MS);
		try_at = 0;
		return;
	}
	ereport(LOG, (errmsg("weir: the pooler is started anew, and its clients go over")));
	leaving = child;
	leaving.notify = leaving.console = -1;
	child.pid = 0;
	child.out = -1;
	remember_fixed();
	if (!weir_start_child(&child, true))
	{
		child = leaving;
		child.notify = notify;
		leaving.pid = 0;
		leaving.out = -1;
	}
}

/* One is told to end: see that it does */
static void
look_at_ending(void)
{
	if (!is_past(child.since))
		return;
	if (child.ending == SIGTERM)
		return;					/* it has as much time as its clients take */
	told_to_end(child.ending == SIGQUIT ? SIGKILL : SIGQUIT, END_MS);
}

/*
 * A role of the same name, with a password that the pooler is going to read, is
 * not to meet a server of the one before it: servers are replaced first.
 */
static void
tell_changes(void)
{
	static TimestampTz patience = 0;

	if (reconnect && child.console < 0)
	{
		child.console = weir_tell_console("RECONNECT");
		reconnect = child.console < 0;
		patience = after(LOOK_MS);
	}
	if (child.console >= 0 && !is_past(patience))
		return;
	if (child.reload)
	{
		child.reload = false;
		weir_signal_child(&child, SIGHUP);
	}
}

static void
supervise(void)
{
	static TimestampTz asked = 0;

	look_at_end();
	if (child.pid == 0)
	{
		if (leaving.pid != 0 && !is_wanted())
		{
			weir_end_child(&leaving, END_MS);
			return;
		}
		if (is_wanted() && is_past(try_at) && refresh_files())
			begin();
		return;
	}
	if (child.ending != 0 && child.ending != SIGTERM)
	{
		look_at_ending();
		return;
	}
	if (!is_wanted())
	{
		told_to_end(weir_stop_timeout > 0 ? SIGINT : SIGQUIT,
					weir_stop_timeout > 0 ? weir_stop_timeout * 1000 : END_MS);
		return;
	}
	if (is_past(asked))
	{
		asked = after(LOOK_MS);
		if (child.ending == 0 && child.ready && is_server_stopping())
			told_to_end(SIGTERM, 0);
	}
	if (child.ending != 0 || !is_past(try_at) || !refresh_files())
		return;
	if (look_at_fixed && child.ready)
	{
		look_at_fixed = false;
		if (is_other(fixed, fixed_now()))
		{
			begin_anew();
			return;
		}
	}
	if (child.ready)
		tell_changes();
}

/*
 * The process
 */

/* It has answered, or is gone: either way nothing follows from it */
static void
hear_console(void)
{
	char		buf[1024];
	ssize_t		n;

	while ((n = recv(child.console, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
		;
	if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
	{
		close(child.console);
		child.console = -1;
	}
}

/* Wait for whatever is next */
static void
wait_for_more(void)
{
	WaitEventSet *set;
	WaitEvent	events[6];
	int			n;
	long		timeout = is_wanted() || child.pid != 0 || leaving.pid != 0 ? TICK_MS : -1;

	/* Without the pooler there are roles to look at for nobody */
	if (is_wanted() && child.pid == 0 && timeout > 0)
		timeout = Max(1, Min(timeout, TimestampDifferenceMilliseconds(GetCurrentTimestamp(), try_at)));
	if (!is_wanted() && weir_enabled)
		timeout = TICK_MS;		/* a standby may be promoted */
#if PG_VERSION_NUM >= 170000
	set = CreateWaitEventSet(NULL, 6);
#else
	set = CreateWaitEventSet(CurrentMemoryContext, 6);
#endif
	AddWaitEventToSet(set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	if (child.out >= 0)
		AddWaitEventToSet(set, WL_SOCKET_READABLE, child.out, NULL, NULL);
	if (leaving.out >= 0)
		AddWaitEventToSet(set, WL_SOCKET_READABLE, leaving.out, NULL, NULL);
	if (child.notify >= 0)
		AddWaitEventToSet(set, WL_SOCKET_READABLE, child.notify, NULL, NULL);
	if (child.console >= 0)
		AddWaitEventToSet(set, WL_SOCKET_READABLE, child.console, NULL, NULL);
	n = WaitEventSetWait(set, timeout, events, lengthof(events), PG_WAIT_EXTENSION);
	for (int i = 0; i < n; i++)
	{
		if (events[i].events & WL_LATCH_SET)
			ResetLatch(MyLatch);
		else if (events[i].fd == child.notify)
			weir_hear_notify(&child);
		else if (events[i].fd == child.console)
			hear_console();
		else if (events[i].fd == child.out && !weir_hear_child(&child))
		{
			/* It has closed its standard error, and its end is told elsewhere */
			close(child.out);
			child.out = -1;
		}
		else if (events[i].fd == leaving.out && !weir_hear_child(&leaving))
		{
			close(leaving.out);
			leaving.out = -1;
		}
	}
	FreeWaitEventSet(set);
}

/* What it reads the catalogs by, once there is something to read them for */
static void
connect_to_database(void)
{
	static bool connected = false;

	if (connected)
		return;
	BackgroundWorkerInitializeConnection(weir_database, NULL, 0);
	connected = true;
	/* Nothing that others have created is called */
	SetConfigOption("search_path", "", PGC_SUSET, PGC_S_SESSION);
	/* Others may wait, or fail on a standby */
	SetConfigOption("default_transaction_isolation", "read committed", PGC_SUSET, PGC_S_SESSION);
	CacheRegisterSyscacheCallback(AUTHOID, catalog_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(DATABASEOID, catalog_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHMEMMEMROLE, catalog_changed, (Datum) 0);
}

void
weir_worker_main(Datum arg)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGCHLD, handle_sigchld);
	BackgroundWorkerUnblockSignals();
	weir_note_load_time();
	/* A reload up to now may have been ignored (StartBackgroundWorker) */
	ConfigReloadPending = true;

	/* Another session has started one in the same moment */
	if (!weir_take_place())
		proc_exit(0);
	before_shmem_exit(leave, (Datum) 0);

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (ShutdownRequestPending)
			proc_exit(1);		/* started again, unless the server ends */
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			stale = reloaded = look_at_fixed = true;
			if (child.pid == 0)
				try_at = 0;		/* the reason may be gone */
		}
		if (is_wanted() || child.pid != 0 || leaving.pid != 0)
		{
			connect_to_database();
			look_at_catalogs();
		}
		supervise();
		wait_for_more();
	}
}
