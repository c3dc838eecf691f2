/*-------------------------------------------------------------------------
 *
 * channels.c
 *	  Which channels the session listens to, and which it has left.
 *
 * A pooler may have another session listen for this one.  Then this one does
 * not listen to a channel that its client listens to, and an UNLISTEN of it
 * does nothing here: so what was left is told too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "funcapi.h"
#include "nodes/execnodes.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"

#include "weir.h"

/* A LISTEN or UNLISTEN that was not told yet */
typedef struct Change
{
	int			level;			/* of the transaction it is of; 0: committed */
	bool		listens;
	char	   *channel;		/* NULL: all of them */
} Change;

static Change *changes = NULL;
static int	nchanges = 0;
static int	changes_size = 0;

static bool told = false;		/* was the list told? */
static bool asked = false;		/* was weir.asks sent since the last report? */


/* A LISTEN or UNLISTEN is going to be carried out; may throw */
void
weir_note_channel(bool listens, const char *channel)
{
	Change	   *room;
	char	   *copy = NULL;

	weir_notes.listen_stale = true;
	if (!weir_is_reporting())
		return;
	room = weir_make_room(changes, nchanges, &changes_size, sizeof(Change));
	if (room != NULL)
		changes = room;
	if (room != NULL && channel != NULL)
		copy = strdup(channel);
	if (room == NULL || (channel != NULL && copy == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	changes[nchanges].level = GetCurrentTransactionNestLevel();
	changes[nchanges].listens = listens;
	changes[nchanges++].channel = copy;
}

/* A transaction of this level, or a part of one, has ended */
static void
end_level(int level, bool commits)
{
	while (!commits && nchanges > 0 && changes[nchanges - 1].level >= level)
		free(changes[--nchanges].channel);
	for (int i = nchanges - 1; i >= 0 && changes[i].level >= level; i--)
		changes[i].level = level - 1;
}

/*
 * What a prepared transaction leaves is nobody's.  async.c refuses it, but for
 * an UNLISTEN where this session has never listened.
 */
void
weir_refuse_prepare(void)
{
	if (nchanges > 0 && changes[nchanges - 1].level > 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that has executed LISTEN or UNLISTEN")));
}

void
weir_end_channels(bool commits)
{
	end_level(1, commits);
}

static void
weir_subxact_callback(SubXactEvent event, SubTransactionId mySubid,
					  SubTransactionId parentSubid, void *arg)
{
	if (event == SUBXACT_EVENT_COMMIT_SUB || event == SUBXACT_EVENT_ABORT_SUB)
		end_level(GetCurrentTransactionNestLevel(),
				  event == SUBXACT_EVENT_COMMIT_SUB);
}

/* What a statement asks for is not what its client listens to, perhaps */
void
weir_note_asks(void)
{
	if (!weir_is_reporting() || asked)
		return;
	weir_message_begin("weir.asks");
	asked = weir_message_end();
	if (asked)
		weir_message_send();
	else
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
}

/* By channel, and what was done to one in its order */
static int
compare_changes(const void *a, const void *b)
{
	int			i = *(const int *) a;
	int			j = *(const int *) b;
	int			order = strcmp(changes[i].channel, changes[j].channel);

	return order != 0 ? order : (i > j) - (i < j);
}

/* Write the channels of "order" that were listened to last, or left last */
static bool
write_changes(const int *order, int n, bool listens)
{
	bool		any = false;

	for (int i = 0; i < n; i++)
	{
		Change	   *change = &changes[order[i]];

		if (i + 1 < n &&
			strcmp(changes[order[i + 1]].channel, change->channel) == 0)
			continue;			/* something was done to it later */
		if (change->listens != listens)
			continue;
		if (any)
			weir_message_byte(' ');
		weir_message_text(change->channel, ' ');
		any = true;
	}
	return any;
}

/*
 * Tell what was left since the last report, some channels or all but those
 * that were listened to behind that, and then what was listened to.
 */
static bool
tell_changes(void)
{
	int			first = 0;
	int			n;
	int		   *order;
	bool		ok = true;

	for (int i = 0; i < nchanges; i++)
		if (changes[i].channel == NULL)
			first = i + 1;
	n = nchanges - first;
	order = malloc((n + 1) * sizeof(int));
	if (order == NULL)
		return false;
	for (int i = 0; i < n; i++)
		order[i] = first + i;
	qsort(order, n, sizeof(int), compare_changes);

	weir_message_begin(first > 0 ? "weir.unlisten_but" : "weir.unlisten");
	if (write_changes(order, n, first > 0) || first > 0)
	{
		ok = weir_message_end();
		if (ok)
			weir_message_send();
	}
	weir_message_begin("weir.listen");
	if (ok && write_changes(order, n, true))
	{
		ok = weir_message_end();
		if (ok)
			weir_message_send();
	}
	free(order);
	return ok;
}

/*
 * Does it listen to anything?  "all": write the names, too.  The list is static
 * in async.c, so call the SQL function, which needs no transaction.  It
 * allocates memory; returns false if that failed.
 */
static bool
look_at_channels(bool all, bool *listening)
{
	MemoryContext oldcontext = CurrentMemoryContext;
	volatile MemoryContext scratch = NULL;
	volatile bool ok = true;

	*listening = false;
	PG_TRY();
	{
		LOCAL_FCINFO(fcinfo, 0);
		FmgrInfo	flinfo;
		ReturnSetInfo rsinfo;

		scratch = AllocSetContextCreate(TopMemoryContext, "weir",
										ALLOCSET_SMALL_SIZES);
		MemoryContextSwitchTo(scratch);
		fmgr_info_cxt(F_PG_LISTENING_CHANNELS, &flinfo, scratch);
		memset(&rsinfo, 0, sizeof(rsinfo));
		rsinfo.type = T_ReturnSetInfo;
		rsinfo.econtext = makeNode(ExprContext);
		rsinfo.econtext->ecxt_per_query_memory = scratch;
		rsinfo.allowedModes = SFRM_ValuePerCall;
		rsinfo.returnMode = SFRM_ValuePerCall;
		do
		{
			Datum		channel;

			InitFunctionCallInfoData(*fcinfo, &flinfo, 0, InvalidOid, NULL,
									 (Node *) &rsinfo);
			channel = FunctionCallInvoke(fcinfo);
			if (rsinfo.isDone == ExprEndResult)
				break;
			if (*listening)
				weir_message_byte(' ');
			*listening = true;
			if (all)
				weir_message_text(TextDatumGetCString(channel), ' ');
		} while (all);
	}
	PG_CATCH();
	{
		FlushErrorState();
		ok = false;
	}
	PG_END_TRY();

	MemoryContextSwitchTo(oldcontext);
	if (scratch != NULL)
		MemoryContextDelete(scratch);
	return ok;
}

/* The first report tells all of them */
static bool
tell_all(bool *listening)
{
	weir_message_begin("weir.listen");
	if (!look_at_channels(true, listening) || !weir_message_end())
		return false;
	weir_message_send();
	return true;
}

/* Tell what has changed.  Returns false if that failed: it is tried again. */
bool
weir_tell_channels(bool *listening)
{
	asked = false;
	if (!weir_notes.listen_stale)
		return true;
	if (told ? !tell_changes() || !look_at_channels(false, listening) :
		!tell_all(listening))
		return false;
	weir_notes.listen_stale = false;
	told = true;
	while (nchanges > 0)
		free(changes[--nchanges].channel);
	return true;
}

void
weir_init_channels(void)
{
	RegisterSubXactCallback(weir_subxact_callback, NULL);
}
