/*-------------------------------------------------------------------------
 *
 * hooks.c
 *	  Notes of what happens in the session, taken where it happens.
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

#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_language.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "commands/defrem.h"
#include "commands/prepare.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "parser/analyze.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "weir.h"

Notes		weir_notes = {.params_stale = true, .listen_stale = true};

/* An object in the temporary schema */
typedef struct TempObject
{
	Oid			classid;
	Oid			objid;
} TempObject;

/* The temporary schema; see weir_xact_callback */
static bool temp_touched = false;	/* by this transaction */
static bool temp_scanned = false;	/* in the commit of this transaction */
static TempObject *temp_objects = NULL; /* found then and not dropped since */
static int	ntemp_objects = 0;
static int	temp_objects_size = 0;

static char **prepared = NULL;	/* names that were given to PREPARE */
static int	nprepared = 0;
static int	prepared_size = 0;

static int	nesting = 0;		/* statements within statements */
static int	functions = 0;		/* those with SET or SECURITY DEFINER */

static post_parse_analyze_hook_type prev_analyze = NULL;
static ProcessUtility_hook_type prev_utility = NULL;
static ExecutorStart_hook_type prev_start = NULL;
static ExecutorRun_hook_type prev_run = NULL;
static ExecutorFinish_hook_type prev_finish = NULL;
static object_access_hook_type prev_object_access = NULL;
static needs_fmgr_hook_type prev_needs_fmgr = NULL;
static fmgr_hook_type prev_fmgr = NULL;


/*
 * Temporary objects
 *
 * Which there are can be asked only in a transaction, and the answer changes
 * up to its very end.  So a transaction that has created or dropped anything
 * looks at the temporary schema at the beginning of its commit, and what ON
 * COMMIT DROP takes away later in the commit is seen by weir_object_access.
 * An abort leaves what was before.
 */
static void
scan_temp_schema(void)
{
	Oid			tempid;
	Oid			toastid;
	Relation	depend;
	SysScanDesc scan;
	ScanKeyData key[2];
	HeapTuple	tuple;

	ntemp_objects = 0;
	GetTempNamespaceState(&tempid, &toastid);
	if (OidIsValid(tempid))
	{
		/* SnapshotSelf sees the last command without a counter increment */
		depend = table_open(DependRelationId, AccessShareLock);
		ScanKeyInit(&key[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber,
					F_OIDEQ, ObjectIdGetDatum(NamespaceRelationId));
		ScanKeyInit(&key[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber,
					F_OIDEQ, ObjectIdGetDatum(tempid));
		scan = systable_beginscan(depend, DependReferenceIndexId, true,
								  SnapshotSelf, 2, key);
		while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		{
			Form_pg_depend d = (Form_pg_depend) GETSTRUCT(tuple);

			TempObject *objects = weir_make_room(temp_objects, ntemp_objects,
											&temp_objects_size,
											sizeof(TempObject));

			if (objects == NULL)
				ereport(ERROR,
						(errcode(ERRCODE_OUT_OF_MEMORY),
						 errmsg("out of memory")));
			temp_objects = objects;
			temp_objects[ntemp_objects].classid = d->classid;
			temp_objects[ntemp_objects].objid = d->objid;
			ntemp_objects++;
		}
		systable_endscan(scan);
		table_close(depend, AccessShareLock);
	}
	temp_scanned = true;
}

static void
weir_xact_callback(XactEvent event, void *arg)
{
	/* weir.report = on in postgresql.conf was assigned in the postmaster */
	weir_start_if_wanted();

	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			if (weir_is_reporting() && (temp_touched || weir_notes.temp_stale))
				scan_temp_schema();
			return;

		case XACT_EVENT_PRE_PREPARE:
			weir_refuse_prepare();
			return;

		case XACT_EVENT_COMMIT:
			if (temp_scanned)
			{
				weir_notes.temp_held = ntemp_objects > 0;
				weir_notes.temp_stale = false;
			}
			else if (temp_touched)
				weir_notes.temp_stale = true;
			weir_end_channels(true);
			break;

		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:	/* refused if temporary objects are touched, or channels */
			weir_end_channels(false);
			break;

		default:
			return;
	}
	temp_touched = false;
	temp_scanned = false;
	functions = 0;
}

/* A built-in function is going to be called, under whatever name */
static void
note_builtin(Oid funcid)
{
	switch (funcid)
	{
		case F_SET_CONFIG:
			weir_notes.params_stale = true;
			break;
		case F_PG_LISTENING_CHANNELS:
			weir_note_asks();
			break;
		case F_SETSEED:
		case F_PG_REPLICATION_ORIGIN_SESSION_SETUP:
#if PG_VERSION_NUM >= 150000
		case F_PG_BACKUP_START:
#else
		case F_PG_START_BACKUP:
#endif
			/* the slots made here may be temporary ones */
		case F_PG_CREATE_PHYSICAL_REPLICATION_SLOT:
		case F_PG_CREATE_LOGICAL_REPLICATION_SLOT:
		case F_PG_COPY_PHYSICAL_REPLICATION_SLOT_NAME_NAME:
		case F_PG_COPY_PHYSICAL_REPLICATION_SLOT_NAME_NAME_BOOL:
		case F_PG_COPY_LOGICAL_REPLICATION_SLOT_NAME_NAME:
		case F_PG_COPY_LOGICAL_REPLICATION_SLOT_NAME_NAME_BOOL:
		case F_PG_COPY_LOGICAL_REPLICATION_SLOT_NAME_NAME_BOOL_NAME:
			weir_notes.lasting++;
			break;
	}
}

static void
weir_object_access(ObjectAccessType access, Oid classId, Oid objectId,
				   int subId, void *arg)
{
	if (prev_object_access)
		prev_object_access(access, classId, objectId, subId, arg);

	switch (access)
	{
		case OAT_POST_CREATE:
		case OAT_POST_ALTER:
			temp_touched = true;
			temp_scanned = false;	/* somebody creates during commit */
			break;

		case OAT_DROP:
			temp_touched = true;
			if (!temp_scanned || subId != 0)
				break;
			/* The latest created goes first, so look from the end */
			for (int i = ntemp_objects - 1; i >= 0; i--)
			{
				if (temp_objects[i].objid == objectId &&
					temp_objects[i].classid == classId)
				{
					temp_objects[i] = temp_objects[--ntemp_objects];
					break;
				}
			}
			break;

		case OAT_FUNCTION_EXECUTE:

			/*
			 * This is the only way to see built-in functions called.  It
			 * comes when an expression is made ready, so it may say too much
			 * (EXPLAIN), but never too little.
			 */
			note_builtin(objectId);
			if (objectId == F_PG_SHOW_ALL_SETTINGS)
				weir_define_settings();
			break;

		default:
			break;
	}
}


/*
 * SQL PREPARE
 */

static bool
is_prepared(const char *name)
{
	PreparedStatement *p = FetchPreparedStatement(name, false);

	return p != NULL && p->from_sql;
}

/* Is any of the names still prepared?  Forgets those at the end that are not */
bool
weir_holds_prepared(void)
{
	while (nprepared > 0)
	{
		if (is_prepared(prepared[nprepared - 1]))
			return true;
		free(prepared[--nprepared]);
	}
	return false;
}

/* Remember the name in a PREPARE, which may fail yet */
static void
note_prepare(const char *name)
{
	char	   *copy;

	char	  **names;

	/* At this occasion forget the names that are not prepared any more */
	for (int i = nprepared - 1; i >= 0; i--)
	{
		if (strcmp(prepared[i], name) == 0)
			return;
		if (!is_prepared(prepared[i]))
		{
			free(prepared[i]);
			prepared[i] = prepared[--nprepared];
		}
	}
	names = weir_make_room(prepared, nprepared, &prepared_size, sizeof(char *));
	copy = strdup(name);
	if (names != NULL)
		prepared = names;
	if (names == NULL || copy == NULL)
		weir_notes.lost = true;
	else
		prepared[nprepared++] = copy;
}


/*
 * Functions and commands
 */

/*
 * A function that is not built in is going to be called.  Languages other
 * than these keep state in the session that cannot be looked into (%_SHARED,
 * GD, modules).  C code may do anything to parameters, and so may the loading
 * of a library, be it the one of plpgsql.
 */
static void
note_function(Oid funcid)
{
	static Oid	plpgsql = InvalidOid;
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(funcid));
	Form_pg_proc proc;

	if (!HeapTupleIsValid(tuple))
		return;
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	if (proc->prolang == ClanguageId || proc->prolang == INTERNALlanguageId)
	{
		/* Which it is tells its name in C: in SQL it may have any */
		bool		isnull;
		Datum		prosrc = SysCacheGetAttr(PROCOID, tuple,
											 Anum_pg_proc_prosrc, &isnull);
		char	   *symbol = isnull ? pstrdup("") : TextDatumGetCString(prosrc);

		if (proc->prolang == INTERNALlanguageId)
			note_builtin(fmgr_internal_function(symbol));
		else
		{
			weir_notes.params_stale = true;
			if (strncmp(symbol, "dblink_connect", 14) == 0)
				weir_notes.lasting++;
		}
		pfree(symbol);
	}
	else if (proc->prolang != SQLlanguageId && proc->prolang != plpgsql)
	{
		char	   *name = get_language_name(proc->prolang, true);

		weir_notes.params_stale = true;
		if (name != NULL && strcmp(name, "plpgsql") == 0)
			plpgsql = proc->prolang;
		else
			weir_notes.lasting++;
	}
	ReleaseSysCache(tuple);
}

/* fmgr.c asks this whenever it looks such a function up ... */
static bool
weir_needs_fmgr(Oid funcid)
{
	note_function(funcid);
	return prev_needs_fmgr ? prev_needs_fmgr(funcid) : false;
}

/* ... except for those with SECURITY DEFINER or SET, for which it calls this */
static void
weir_fmgr(FmgrHookEventType event, FmgrInfo *flinfo, Datum *arg)
{
	if (event == FHET_START)
	{
		note_function(flinfo->fn_oid);
		functions++;
	}
	else if (functions > 0)
		functions--;
	if (prev_fmgr)
		prev_fmgr(event, flinfo, arg);
}

/*
 * What the client's own statement has left.  One within a function is not:
 * what that has set for itself is taken back behind it.  The planner and input
 * functions call functions, too, and then no statement is around those.
 */
static void
note_read(void)
{
	if (nesting == 0 && functions == 0 && weir_is_reporting())
		weir_note_read();
}

/* Run a statement, and look what it has left */
#define WITHIN(run) \
	do \
	{ \
		nesting++; \
		PG_TRY(); \
		{ \
			run; \
		} \
		PG_FINALLY(); \
		{ \
			nesting--; \
		} \
		PG_END_TRY(); \
		note_read(); \
	} while (0)

static void
weir_utility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
			 ProcessUtilityContext context, ParamListInfo params,
			 QueryEnvironment *queryEnv, DestReceiver *dest,
			 QueryCompletion *qc)
{
	Node	   *stmt = pstmt->utilityStmt;
	ListCell   *lc;

	/*
	 * Noted whether it succeeds or not: all of these but LOAD and DO are only
	 * a reason to look.
	 */
	switch (nodeTag(stmt))
	{
		case T_VariableSetStmt:
			weir_notes.params_stale = true;
			break;
		case T_AlterSystemStmt:
			/* This session may be gone as the server reloads: be there ahead */
			if (((AlterSystemStmt *) stmt)->setstmt->name != NULL &&
				pg_strcasecmp(((AlterSystemStmt *) stmt)->setstmt->name, "weir.enabled") == 0 &&
				superuser())
				weir_start_worker_if_none();
			break;
		case T_DiscardStmt:
			weir_notes.params_stale = true;
			if (((DiscardStmt *) stmt)->target == DISCARD_ALL)
				weir_note_channel(false, NULL);
			break;
		case T_ListenStmt:
			weir_note_channel(true, ((ListenStmt *) stmt)->conditionname);
			break;
		case T_UnlistenStmt:
			weir_note_channel(false, ((UnlistenStmt *) stmt)->conditionname);
			break;
		case T_PrepareStmt:
			note_prepare(((PrepareStmt *) stmt)->name);
			break;
		case T_LoadStmt:
			weir_notes.params_stale = true;
			weir_notes.lasting++;
			break;
		case T_DoStmt:
			weir_notes.params_stale = true;
			foreach(lc, ((DoStmt *) stmt)->args)
			{
				DefElem    *def = (DefElem *) lfirst(lc);

				if (strcmp(def->defname, "language") == 0 &&
					strcmp(strVal(def->arg), "plpgsql") != 0)
					weir_notes.lasting++;
			}
			break;
		default:
			break;
	}

	WITHIN(if (prev_utility)
		   prev_utility(pstmt, queryString, readOnlyTree, context, params,
						queryEnv, dest, qc);
		   else
		   standard_ProcessUtility(pstmt, queryString, readOnlyTree, context,
								   params, queryEnv, dest, qc));
}

/* At a Parse: literals were read, and the checks of their domains have run */
static void
weir_analyze(ParseState *pstate, Query *query, JumbleState *jstate)
{
	if (prev_analyze)
		prev_analyze(pstate, query, jstate);
	/* SHOW is described ahead of being carried out */
	if (query->utilityStmt != NULL)
		weir_define_if_named(query->utilityStmt);
	note_read();
}

/* At a Bind: the checks of its values' domains have run, and the planner */
static void
weir_start(QueryDesc *queryDesc, int eflags)
{
	WITHIN(if (prev_start)
		   prev_start(queryDesc, eflags);
		   else
		   standard_ExecutorStart(queryDesc, eflags));
}

/* 18 has no execute_once */
#if PG_VERSION_NUM >= 180000
static void
weir_run(QueryDesc *queryDesc, ScanDirection direction, uint64 count)
{
	WITHIN(if (prev_run)
		   prev_run(queryDesc, direction, count);
		   else
		   standard_ExecutorRun(queryDesc, direction, count));
}
#else
static void
weir_run(QueryDesc *queryDesc, ScanDirection direction, uint64 count,
		 bool execute_once)
{
	WITHIN(if (prev_run)
		   prev_run(queryDesc, direction, count, execute_once);
		   else
		   standard_ExecutorRun(queryDesc, direction, count, execute_once));
}
#endif

/* Triggers run here */
static void
weir_finish(QueryDesc *queryDesc)
{
	WITHIN(if (prev_finish)
		   prev_finish(queryDesc);
		   else
		   standard_ExecutorFinish(queryDesc));
}

void
weir_init_hooks(void)
{
	prev_analyze = post_parse_analyze_hook;
	post_parse_analyze_hook = weir_analyze;
	prev_utility = ProcessUtility_hook;
	ProcessUtility_hook = weir_utility;
	prev_start = ExecutorStart_hook;
	ExecutorStart_hook = weir_start;
	prev_run = ExecutorRun_hook;
	ExecutorRun_hook = weir_run;
	prev_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = weir_finish;
	prev_object_access = object_access_hook;
	object_access_hook = weir_object_access;
	prev_needs_fmgr = needs_fmgr_hook;
	needs_fmgr_hook = weir_needs_fmgr;
	prev_fmgr = fmgr_hook;
	fmgr_hook = weir_fmgr;
	RegisterXactCallback(weir_xact_callback, NULL);
}
