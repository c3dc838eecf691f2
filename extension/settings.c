/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The parameters weir.*, and the pooler's settings as they say them.
 *
 * Which there are, with type, unit and range, is in settings.h, which is made
 * from the pooler's own table of settings.  What a server knows better than
 * that table's defaults is here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <unistd.h>

#include "access/parallel.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "weir.h"

typedef enum SettingKind
{
	TEXT,
	SWITCH,
	INTEGER,
	SECONDS,
	FILE_MODE,
	CHOICE
} SettingKind;

typedef struct Setting
{
	const char *name;
	bool		reloadable;		/* by the pooler, as it runs */
	SettingKind kind;
	const char *boot;
	int			min;
	int			max;
	int			unit;
	const struct config_enum_entry *words;
	const char *of_database;	/* its name for one database, NULL: none */
	const char *of_user;		/* ... for one user */
	const char *summary;
	const char *rest;
} Setting;

#include "settings.h"

typedef union SettingValue
{
	bool		on;
	int			number;
	double		seconds;
	char	   *text;
} SettingValue;

static SettingValue values[lengthof(settings)];
static const char *boots[lengthof(settings)];	/* where settings.h says another */

bool		weir_enabled = false;
bool		weir_standby = true;
int			weir_stop_timeout = 10;
char	   *weir_program = NULL;
char	   *weir_database = NULL;
char	   *weir_config_file = NULL;
char	   *weir_server_host = NULL;


/*
 * Parameters
 */

/* A file that has one setting to a line must not be told two by one value */
static bool
check_line(char **newval, void **extra, GucSource source)
{
	if (*newval != NULL && strpbrk(*newval, "\r\n") != NULL)
	{
		GUC_check_errdetail("It must be a single line.");
		return false;
	}
	return true;
}

static int
setting_of(const char *name)
{
	for (int i = 0; i < (int) lengthof(settings); i++)
		if (pg_strcasecmp(settings[i].name, name) == 0)
			return i;
	return -1;
}

/* What shows a file mode as it is written */
static const char *
show_unix_socket_mode(void)
{
	static char text[12];

	snprintf(text, sizeof(text), "%04o",
			 values[setting_of("weir.unix_socket_mode")].number);
	return text;
}

static void
boot(const char *name, const char *text)
{
	int			i = setting_of(name);

	/* Parameters keep what they are given, in sessions too */
	if (i >= 0 && text != NULL)
		boots[i] = MemoryContextStrdup(TopMemoryContext, text);
}

static int
server_number(const char *name)
{
	const char *text = GetConfigOption(name, true, false);

	return text != NULL ? atoi(text) : 0;
}

/* What cannot change while the server runs is known as parameters are made */
static void
boot_from_server(void)
{
	const char *directories = GetConfigOption("unix_socket_directories", true, false);
	int			available = MaxConnections -
		server_number("superuser_reserved_connections") -
		server_number("reserved_connections");
	long		cores = sysconf(_SC_NPROCESSORS_ONLN);
	char		first[MAXPGPATH];

	available = Max(available, 1);
	boot("weir.max_db_connections", psprintf("%d", available));
	boot("weir.default_pool_size",
		 psprintf("%d", (int) Min(available, Max(20, 4 * cores))));
	boot("weir.max_client_conn", psprintf("%d", Max(1000, 10 * available)));
	boot("weir.pool_mode", "transaction");
	boot("weir.listen_addr", GetConfigOption("listen_addresses", true, false));
	boot("weir.listen_backlog", "4096");
	boot("weir.unix_socket_mode", psprintf("%d", server_number("unix_socket_permissions")));
	boot("weir.unix_socket_group", GetConfigOption("unix_socket_group", true, false));
	/* The server tells this where somebody wants to know */
	boot("weir.log_connections", "0");
	boot("weir.log_disconnections", "0");
	boot("weir.log_stats", "0");
	boot("weir.syslog_ident", "weir");
	/* Both are on this machine, and its loopback is what is between them */
	boot("weir.server_tls_sslmode", "allow");

	strlcpy(first, directories != NULL ? directories : "", sizeof(first));
	first[strcspn(first, ",")] = '\0';
	if (first[0] == '"')
	{
		memmove(first, first + 1, strlen(first));
		first[strcspn(first, "\"")] = '\0';
	}
	boot("weir.unix_socket_dir", first);
}

static int
enum_of(const Setting *s, const char *word)
{
	for (const struct config_enum_entry *w = s->words; w->name != NULL; w++)
		if (pg_strcasecmp(w->name, word) == 0)
			return w->val;
	return 0;
}

static void
define(int i)
{
	const Setting *s = &settings[i];
	const char *text = boots[i] != NULL ? boots[i] : s->boot;
	GucContext	context =
		s->of_database != NULL || s->of_user != NULL ? PGC_SUSET : PGC_SIGHUP;
	const char *rest = s->rest[0] ? s->rest : NULL;

	switch (s->kind)
	{
		case TEXT:
			DefineCustomStringVariable(s->name, s->summary, rest,
									   &values[i].text, text, context, s->unit,
									   check_line, NULL, NULL);
			break;
		case SWITCH:
			DefineCustomBoolVariable(s->name, s->summary, rest,
									 &values[i].on, text[0] == '1', context,
									 s->unit, NULL, NULL, NULL);
			break;
		case INTEGER:
			DefineCustomIntVariable(s->name, s->summary, rest,
									&values[i].number, atoi(text), s->min, s->max,
									context, s->unit, NULL, NULL, NULL);
			break;
		case FILE_MODE:
			DefineCustomIntVariable(s->name, s->summary, rest, &values[i].number,
									(int) strtol(text, NULL, 0), s->min, s->max,
									context, s->unit, NULL, NULL,
									show_unix_socket_mode);
			break;
		case SECONDS:
			DefineCustomRealVariable(s->name, s->summary, rest,
									 &values[i].seconds, atof(text), s->min, s->max,
									 context, s->unit, NULL, NULL, NULL);
			break;
		case CHOICE:
			DefineCustomEnumVariable(s->name, s->summary, rest,
									 &values[i].number, enum_of(s, text), s->words,
									 context, s->unit, NULL, NULL, NULL);
			break;
	}
}

static void
assign_enabled(bool newval, void *extra)
{
	if (newval)
		weir_start_worker_if_none();
}

/*
 * The pooler's settings.  Up to 15, each parameter that is made has all of them
 * sorted anew, which takes milliseconds for so many: a session of anybody's has
 * them only once it names one, or asks for all.
 */
void
weir_define_settings(void)
{
	static bool defined = false;

	if (defined)
		return;
	defined = true;
	boot_from_server();
	for (int i = 0; i < (int) lengthof(settings); i++)
		define(i);
}

static bool
is_at_once(void)
{
	if (PG_VERSION_NUM >= 160000 || process_shared_preload_libraries_in_progress)
		return true;
	/* A library that was asked for is wanted; workers have what leaders have */
	return MyProcPort != NULL ? debug_query_string != NULL : !IsParallelWorker();
}

/* What is going to be carried out may name one */
void
weir_define_if_named(Node *stmt)
{
	const char *name = NULL;

	switch (nodeTag(stmt))
	{
		case T_AlterSystemStmt:
			name = ((AlterSystemStmt *) stmt)->setstmt->name;
			break;
		case T_VariableSetStmt:
			name = ((VariableSetStmt *) stmt)->name;
			break;
		case T_VariableShowStmt:
			name = ((VariableShowStmt *) stmt)->name;
			break;
		case T_AlterRoleSetStmt:
			name = ((AlterRoleSetStmt *) stmt)->setstmt->name;
			break;
		case T_AlterDatabaseSetStmt:
			name = ((AlterDatabaseSetStmt *) stmt)->setstmt->name;
			break;
		default:
			break;
	}
	if (name != NULL && (pg_strncasecmp(name, "weir.", 5) == 0 ||
						 pg_strcasecmp(name, "all") == 0))
		weir_define_settings();
}

/*
 * The prefix is not reserved: the pooler has names of its own in it, which it
 * sets in sessions of a server that lacks this library just as well.
 */
void
weir_init_settings(void)
{
	if (is_at_once())
		weir_define_settings();

	DefineCustomStringVariable("weir.program", "The pooler's program.",
							   "A path, or a name that is looked for beside PostgreSQL's programs and in /usr/local/bin and /usr/bin.",
							   &weir_program, "weir", PGC_SIGHUP, GUC_SUPERUSER_ONLY,
							   check_line, NULL, NULL);
	DefineCustomStringVariable("weir.database",
							   "The database in which the background worker reads roles and settings.",
							   "It takes effect when that worker starts.",
							   &weir_database, "postgres", PGC_SIGHUP, 0,
							   check_line, NULL, NULL);
	DefineCustomStringVariable("weir.config_file",
							   "A file in the pooler's format for what no parameter says.",
							   "Parameters that are set count more, and who may enter is not for it to say.",
							   &weir_config_file, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY,
							   check_line, NULL, NULL);
	DefineCustomStringVariable("weir.server_host",
							   "The pooler's way to this server: the folder of a Unix socket, or an address.",
							   "Empty: the Unix socket where pg_hba.conf lets the pooler in there, else the loopback.",
							   &weir_server_host, "", PGC_SIGHUP, 0,
							   check_line, NULL, NULL);
	DefineCustomBoolVariable("weir.standby",
							 "Whether the pooler answers while this server is a standby.", NULL,
							 &weir_standby, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("weir.stop_timeout",
							"How long transactions may go on when pooling is turned off.", NULL,
							&weir_stop_timeout, 10, 0, INT_MAX / 1000, PGC_SIGHUP,
							GUC_UNIT_S, NULL, NULL, NULL);
	/* Last, since it may start a worker that has all others */
	DefineCustomBoolVariable("weir.enabled",
							 "Whether the pooler runs.",
							 NULL, &weir_enabled, false, PGC_SIGHUP, 0,
							 NULL, assign_enabled, NULL);
}


/* One that is none of the pooler's settings */
bool
weir_is_own_parameter(const char *name)
{
	static const char *const own[] = {
		"weir.enabled", "weir.program", "weir.database", "weir.config_file",
		"weir.server_host", "weir.standby", "weir.stop_timeout", "weir.report"
	};

	for (int i = 0; i < (int) lengthof(own); i++)
		if (strcmp(own[i], name) == 0)
			return true;
	return false;
}


/*
 * What they come to, in the pooler's own spelling
 */

static void
append_value(StringInfo to, const Setting *s, const SettingValue *v)
{
	switch (s->kind)
	{
		case TEXT:
			appendStringInfoString(to, v->text != NULL ? v->text : "");
			break;
		case SWITCH:
			appendStringInfoString(to, v->on ? "1" : "0");
			break;
		case INTEGER:
			appendStringInfo(to, "%d", v->number);
			break;
		case FILE_MODE:
			appendStringInfo(to, "%04o", v->number);
			break;
		case SECONDS:
			appendStringInfo(to, "%.6f", v->seconds);
			break;
		case CHOICE:
			for (const struct config_enum_entry *w = s->words; w->name != NULL; w++)
				if (w->val == v->number)
					appendStringInfoString(to, w->name);
			break;
	}
}

/*
 * A line for each setting that is one of "wanted", by their names with weir.,
 * or for each that is none of them.
 */
void
weir_append_settings(StringInfo to, List *wanted, bool which)
{
	for (int i = 0; i < (int) lengthof(settings); i++)
	{
		const Setting *s = &settings[i];
		bool		found = false;
		ListCell   *lc;

		foreach(lc, wanted)
			found |= strcmp(lfirst(lc), s->name) == 0;
		/* What nobody has said and settings.h knows, the pooler knows too */
		if (found != which || (!which && boots[i] == NULL))
			continue;
		appendStringInfo(to, "%s = ", s->name + strlen("weir."));
		append_value(to, s, &values[i]);
		appendStringInfoChar(to, '\n');
	}
}

/* All that the pooler reads as it starts, to be compared */
void
weir_append_fixed(StringInfo to)
{
	for (int i = 0; i < (int) lengthof(settings); i++)
	{
		if (settings[i].reloadable)
			continue;
		append_value(to, &settings[i], &values[i]);
		appendStringInfoChar(to, '\n');
	}
}

/*
 * What ALTER DATABASE or ALTER ROLE says, as the pooler's list of pairs for a
 * database or user has it.  False: it has no such key, or the value is wrong,
 * as it may be where this library was not loaded.
 */
bool
weir_append_pair(StringInfo to, const char *name, const char *text, bool of_user)
{
	int			i = setting_of(name);
	const Setting *s;
	const char *key;
	SettingValue		v;
	bool		ok = true;

	if (i < 0)
		return false;
	s = &settings[i];
	key = of_user ? s->of_user : s->of_database;
	if (key == NULL)
		return false;
	switch (s->kind)
	{
		case TEXT:
			v.text = (char *) text;
			ok = text[0] != '\0' && strpbrk(text, "\r\n") == NULL;
			break;
		case SWITCH:
			ok = parse_bool(text, &v.on);
			break;
		case INTEGER:
		case FILE_MODE:
			ok = parse_int(text, &v.number, s->unit, NULL) &&
				v.number >= s->min && v.number <= s->max;
			break;
		case SECONDS:
			ok = parse_real(text, &v.seconds, s->unit, NULL) &&
				v.seconds >= s->min && v.seconds <= s->max;
			break;
		case CHOICE:
			v.number = enum_of(s, text);
			ok = pg_strcasecmp(s->words[v.number].name, text) == 0;
			break;
	}
	if (!ok)
		return false;
	appendStringInfo(to, " %s=", key);
	if (s->kind == TEXT)
		weir_append_quoted(to, text, '\'');
	else
		append_value(to, s, &v);
	return true;
}

const char *
weir_text_setting(const char *name)
{
	int			i = setting_of(name);

	return i >= 0 && values[i].text != NULL ? values[i].text : "";
}

int
weir_number_setting(const char *name)
{
	int			i = setting_of(name);

	return i >= 0 ? values[i].number : 0;
}

const char *
weir_boot_setting(const char *name)
{
	int			i = setting_of(name);

	return i < 0 ? NULL : boots[i] != NULL ? boots[i] : settings[i].boot;
}
