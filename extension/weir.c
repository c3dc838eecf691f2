/*-------------------------------------------------------------------------
 *
 * weir.c
 *	  Tells a connection pooler exactly what state a session holds.
 *
 * A pooler that hands one server connection to several clients has to know
 * what a client leaves behind in it.  Guessing that from the text of the
 * queries is hopeless, because functions, triggers and rules can do
 * everything a statement can.  The backend knows, so this module makes it
 * say so: right before each ReadyForQuery that finds the session idle outside
 * a transaction, it sends ParameterStatus messages for what has changed
 * since the last one:
 *
 *	weir.session	words for what the session holds: temp lock listen hold
 *					prepare unknown lasting=N
 *	weir.set		name=value of a parameter the session has set
 *	weir.reset		name of a parameter told before and not set any more
 *	weir.listen		channels it has begun to listen to; at first all
 *	weir.unlisten	channels it was told to leave, whether it listened or not
 *	weir.unlisten_but	it was told to leave all channels but these
 *
 * And ahead of each ReadyForQuery, in a transaction too,
 *
 *	weir.read		some statement since the last report has left a parameter that
 *					parsing reads otherwise than that report told
 *
 * And at once, in the midst of a statement,
 *
 *	weir.asks		it calls pg_listening_channels()
 *
 * Channels are separated by spaces.  Values are such that set_config(name, value, false) restores them; bytes
 * outside printable ASCII, and backslashes, are written as \ooo.  They are in
 * the database's encoding, no conversion is done.
 *
 * Nothing is sent before weir.report has been set on in the session; after
 * that nothing ends the reporting.  Load it with session_preload_libraries,
 * local_preload_libraries or shared_preload_libraries.
 *
 * Written for PostgreSQL 14 to 18.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

/*
 * libpq-be.h wants the headers of the GSSAPI library if PostgreSQL was built
 * with it.  We need nothing of that, only PQcommMethods.
 */
#undef ENABLE_GSS
#undef ENABLE_SSPI
#undef USE_OPENSSL

#include "access/parallel.h"
#include "fmgr.h"
#include "libpq/libpq.h"
#include "miscadmin.h"
#include "replication/walsender.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "weir.h"

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

/* Words of weir.session, in the order they are told */
#define HELD_TEMP		0x01
#define HELD_LOCK		0x02
#define HELD_LISTEN		0x04
#define HELD_HOLD		0x08
#define HELD_PREPARE	0x10
#define HELD_UNKNOWN	0x20

static const char *const held_words[] = {
	"temp", "lock", "listen", "hold", "prepare", "unknown"
};

static bool report_wanted = false;	/* weir.report */
static bool reporting = false;	/* was it ever on? */
static bool unknown;			/* could something not be found out now? */

/* What was told last */
static bool session_told = false;	/* anything? */
static unsigned held_told;
static uint64 lasting_told;

static bool listening = false;
static bool params_hidden = false;
static MemoryContext portals = NULL;	/* portalmem.c's TopPortalContext */

static const PQcommMethods *inner = NULL;	/* what we have wrapped */
static PQcommMethods wrapper;


/*
 * What the session holds beside parameters
 */

/*
 * Outside a transaction, only session-level locks are left in our lists.
 * Nobody else adds to them then: others only move locks there that we had
 * taken by fast path, and such locks end with the transaction.
 */
static bool
holds_locks(void)
{
	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
	{
#if PG_VERSION_NUM >= 160000
		if (!dlist_is_empty(&MyProc->myProcLocks[i]))
			return true;
#else
		if (!SHMQueueEmpty(&MyProc->myProcLocks[i]))
			return true;
#endif
	}
	return false;
}

/* Outside a transaction, any portal is one that has outlived its own. */
static bool
holds_portals(void)
{
	if (portals == NULL)
	{
		MemoryContext c = TopMemoryContext->firstchild;

		while (c != NULL && strcmp(c->name, "TopPortalContext") != 0)
			c = c->nextchild;
		if (c == NULL)
		{
			unknown = true;
			return false;
		}
		portals = c;
	}
	return portals->firstchild != NULL;
}

void
weir_message_send(void)
{
	int			len;
	const char *body = weir_message_body(&len);

	(void) inner->putmessage('S', body, len);
}

static void
tell_session(unsigned held)
{
	char		words[128] = "";

	if (session_told && held == held_told && weir_notes.lasting == lasting_told)
		return;

	for (int i = 0; i < (int) lengthof(held_words); i++)
	{
		if (held & (1u << i))
		{
			if (words[0])
				strlcat(words, " ", sizeof(words));
			strlcat(words, held_words[i], sizeof(words));
		}
	}
	if (weir_notes.lasting > 0)
		snprintf(words + strlen(words), sizeof(words) - strlen(words),
				 "%slasting=" UINT64_FORMAT, words[0] ? " " : "", weir_notes.lasting);

	weir_message_begin("weir.session");
	weir_message_text(words, '\0');
	if (!weir_message_end())
		return;					/* not remembered, so tried again */
	weir_message_send();
	session_told = true;
	held_told = held;
	lasting_told = weir_notes.lasting;
}

static void
tell_read(void)
{
	weir_message_begin("weir.read");
	if (weir_message_end())
		weir_message_send();
}

static void
report(void)
{
	unsigned	held = 0;

	unknown = weir_notes.lost || weir_notes.temp_stale;
	if (!weir_tell_channels(&listening))
		unknown = true;
	if (weir_notes.params_stale || weir_looks_each_time())
		weir_notes.params_stale = !weir_tell_parameters(&params_hidden);
	if (weir_notes.params_stale || params_hidden)
		unknown = true;

	if (weir_notes.temp_held)
		held |= HELD_TEMP;
	if (holds_locks())
		held |= HELD_LOCK;
	if (listening)
		held |= HELD_LISTEN;
	if (holds_portals())
		held |= HELD_HOLD;
	if (weir_holds_prepared())
		held |= HELD_PREPARE;
	if (unknown)
		held |= HELD_UNKNOWN;
	tell_session(held);
}

/*
 * This is the one place that is passed on every way to ReadyForQuery, after
 * commit or after the recovery from an error, when all the state of the
 * session is settled.  In a transaction the pooler cannot hand the server on
 * anyway, so all that is told is whether what is parsed now is parsed under
 * what it knows.
 */
static int
weir_putmessage(char msgtype, const char *s, size_t len)
{
	if (msgtype == 'Z' && len == 1)
	{
		weir_note_read();
		if (weir_notes.reads_otherwise)
			tell_read();
		if (s[0] == 'I')
		{
			report();
			weir_remember_read();
		}
	}
	return inner->putmessage(msgtype, s, len);
}

/* Start to report; there is no way back */
static void
start_reporting(void)
{
	if (reporting || MyProcPort == NULL || am_walsender || IsParallelWorker())
		return;
	reporting = true;
	inner = PqCommMethods;
	wrapper = *inner;
	wrapper.putmessage = weir_putmessage;
	PqCommMethods = &wrapper;
}

bool
weir_is_reporting(void)
{
	return reporting;
}

void
weir_start_if_wanted(void)
{
	if (report_wanted)
		start_reporting();
}

static void
assign_report(bool newval, void *extra)
{
	if (newval)
		start_reporting();
}

void
_PG_init(void)
{
	/* Parallel workers get a copy of the parameter, so define it for all */
	DefineCustomBoolVariable("weir.report",
							 "Report the state of the session to a connection pooler.",
							 "Once on, it stays on until the session ends.",
							 &report_wanted, false, PGC_USERSET,
							 GUC_NO_SHOW_ALL, NULL, assign_report, NULL);

	weir_init_start();
	weir_init_settings();

	if (!process_shared_preload_libraries_in_progress &&
		(MyProcPort == NULL || am_walsender || IsParallelWorker()))
		return;

	/* LOAD in the middle of a session: who knows what has been before */
	if (MyProcPort != NULL && debug_query_string != NULL)
		weir_notes.lost = true;

	weir_init_parameters();
	weir_init_channels();

	/*
	 * The hooks only take notes, which costs next to nothing, and do so from
	 * the start because weir.report may be set on at any time.
	 */
	weir_init_hooks();
}
