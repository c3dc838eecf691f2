/*-------------------------------------------------------------------------
 *
 * files.c
 *	  The pooler's configuration, written from what the server knows.
 *
 * Parameters, roles and their verifiers, settings of databases and roles, the
 * rules of pg_hba.conf as the server has read them, certificates: all of it is
 * in a folder that only the server's own system user can look into.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "weir.h"

/* One of the files, and what is in it */
typedef struct Written
{
	const char *name;
	char	   *text;			/* as it was written last; malloc'ed */
} Written;

static Written ini = {"weir.ini", NULL};
static Written users = {"users.txt", NULL};
static Written records = {"pg_hba.conf", NULL};
static Written maps = {"pg_ident.conf", NULL};

/* When the server has read its files last, as this process began */
static TimestampTz server_loaded = 0;

/* The server's own files, where the pooler can read those alone */
static bool records_elsewhere = false;


/*
 * Text
 */

/* In quotes, of which one within is written twice */
void
weir_append_quoted(StringInfo to, const char *text, char quote)
{
	appendStringInfoChar(to, quote);
	for (; *text; text++)
	{
		if (*text == quote)
			appendStringInfoChar(to, quote);
		appendStringInfoChar(to, *text);
	}
	appendStringInfoChar(to, quote);
}

/* A name that a line of the pooler's files can have */
static bool
is_writable(const char *name)
{
	return name[0] != '\0' && strpbrk(name, "\r\n") == NULL &&
		pg_verify_mbstr(PG_UTF8, name, strlen(name), true);
}

/*
 * Write a file anew where it is another.  Whoever reads it waits for one that
 * somebody seems to be writing: this one is whole as it gets its name, and
 * says so by its age.
 */
static bool
write_file(Written *file, const char *text)
{
	char		path[MAXPGPATH];
	char		fresh[MAXPGPATH];
	size_t		len = strlen(text);
	struct timespec times[2];
	char	   *copy;
	int			fd;

	if (file->text != NULL && strcmp(file->text, text) == 0)
		return false;
	strlcpy(path, weir_file(file->name), sizeof(path));
	snprintf(fresh, sizeof(fresh), "%s.new", path);
	unlink(fresh);
	fd = OpenTransientFilePerm(fresh, O_WRONLY | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
	if (fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create file \"%s\": %m", fresh)));
	errno = 0;
	if (write(fd, text, len) != (ssize_t) len)
	{
		if (errno == 0)
			errno = ENOSPC;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", fresh)));
	}
	times[0].tv_sec = times[1].tv_sec = time(NULL) - 2;
	times[0].tv_nsec = times[1].tv_nsec = 0;
	futimens(fd, times);
	CloseTransientFile(fd);
	if (rename(fresh, path) < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not rename file \"%s\" to \"%s\": %m", fresh, path)));

	/* If there is no memory for it, it is written again */
	copy = strdup(text);
	free(file->text);
	file->text = copy;
	return true;
}

static void
run(const char *query)
{
	if (SPI_execute(query, true, 0) != SPI_OK_SELECT)
		ereport(ERROR, (errmsg_internal("weir: %s", query)));
}

static char *
cell(uint64 row, int column)
{
	return SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column);
}

static bool
run_bool(const char *query)
{
	bool		isnull;

	run(query);
	return SPI_processed == 1 &&
		DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0],
								   SPI_tuptable->tupdesc, 1, &isnull)) && !isnull;
}


/*
 * Who may enter
 */

/*
 * Roles that may log in.  A password that has expired, or that is none, fits
 * nobody's, and who comes in without one needs none.  Returns when the next
 * one expires.
 */
static void
append_users(StringInfo to, TimestampTz *next)
{
	run("SELECT rolname, CASE WHEN rolvaliduntil <= pg_catalog.now() THEN NULL ELSE rolpassword END, "
		"CASE WHEN rolvaliduntil > pg_catalog.now() AND rolvaliduntil < 'infinity' THEN rolvaliduntil END "
		"FROM pg_catalog.pg_authid WHERE rolcanlogin ORDER BY 1");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		char	   *name = cell(i, 1);
		char	   *secret = cell(i, 2);
		bool		isnull;
		Datum		until = SPI_getbinval(SPI_tuptable->vals[i],
										  SPI_tuptable->tupdesc, 3, &isnull);

		if (!isnull && (*next == 0 || DatumGetTimestampTz(until) < *next))
			*next = DatumGetTimestampTz(until);
		if (!is_writable(name))
			continue;
		/* What is no verifier would be taken for a password in clear */
		if (secret != NULL && strncmp(secret, "SCRAM-SHA-256$", 14) != 0 &&
			strncmp(secret, "md5", 3) != 0)
			secret = NULL;
		weir_append_quoted(to, name, '"');
		appendStringInfoChar(to, ' ');
		weir_append_quoted(to, secret != NULL ? secret : "", '"');
		appendStringInfoChar(to, '\n');
	}
}

/* The whole of a file, or NULL */
static char *
read_whole(const char *path)
{
	StringInfoData text;
	char		buf[8192];
	ssize_t		n;
	int			fd = OpenTransientFile(path, O_RDONLY);

	if (fd < 0)
		return NULL;
	initStringInfo(&text);
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		appendBinaryStringInfo(&text, buf, n);
	CloseTransientFile(fd);
	return n < 0 ? NULL : text.data;
}

/*
 * Where the pooler asks PostgreSQL about roles: an entry for nobody else, as the
 * rules say that it is given.
 */
#define LOOKUPS	"weir lookups"
#define AUTH_QUERY \
	"SELECT rolname, CASE WHEN rolvaliduntil < pg_catalog.now() THEN NULL ELSE rolpassword END " \
	"FROM pg_catalog.pg_authid WHERE rolname OPERATOR(pg_catalog.=) $1 AND rolcanlogin"

/* Does it name other files, which are beside it? */
static bool
names_others(const char *text)
{
	for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n')
	{
		const char *word = at + strspn(at, " \t\r,");
		const char *sign = word;

		if (strncmp(word, "include", 7) == 0)
			return true;
		while (*sign && *sign != '\n' && *sign != '#' && *sign != '@')
			sign++;
		if (*sign == '@')
			return true;
	}
	return false;
}

/*
 * The server reads these files as it is told to reload, so a copy is made
 * then: what somebody is still writing counts for neither.  Where they name
 * others, it is these themselves.
 */
static bool
copy_records(void)
{
	const char *hba = GetConfigOption("hba_file", false, false);
	const char *ident = GetConfigOption("ident_file", false, false);
	char	   *hba_text = read_whole(hba);
	char	   *ident_text = read_whole(ident);
	char	   *kept;
	bool		changed = false;
	struct stat found;

	/* This process is new, and the server has not read what is there now */
	if (records.text == NULL && !records_elsewhere && stat(hba, &found) == 0 &&
		found.st_mtime > timestamptz_to_time_t(server_loaded) + 1 &&
		(kept = read_whole(weir_file(records.name))) != NULL)
	{
		records.text = strdup(kept);
		return false;
	}
	if (!run_bool("SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_hba_file_rules WHERE error IS NOT NULL)") &&
		(records.text != NULL || records_elsewhere))
	{
		ereport(LOG,
				(errmsg("weir: pg_hba.conf was not reloaded, and the pooler goes by what it was")));
		return false;
	}
	records_elsewhere = hba_text == NULL || names_others(hba_text) ||
		(ident_text != NULL && names_others(ident_text));
	if (records_elsewhere)
		return false;
	changed |= write_file(&records, psprintf("local \"%s\" all reject\nhost \"%s\" all all reject\n%s",
												  LOOKUPS, LOOKUPS, hba_text));
	changed |= write_file(&maps, ident_text != NULL ? ident_text : "");
	return changed;
}


/*
 * The configuration
 */

/* The system's user that we are, as a literal */
static char *
own_user(void)
{
	StringInfoData name;
	struct passwd *user = getpwuid(geteuid());

	initStringInfo(&name);
	weir_append_quoted(&name, user != NULL ? user->pw_name : "", '\'');
	return name.data;
}

/*
 * Does the server let the pooler in by its Unix socket?  It can show what
 * passwords ask for; by the system's user it can be that one's own role, or
 * whomever a map lets it be.
 */
static bool
may_use_unix_socket(void)
{
	return run_bool(psprintf(
		"WITH r AS (SELECT * FROM pg_catalog.pg_hba_file_rules WHERE type = 'local' AND error IS NULL AND database <> '{replication}') "
		"SELECT EXISTS (SELECT FROM r WHERE auth_method <> 'reject') AND NOT EXISTS (SELECT FROM r WHERE auth_method NOT IN "
		"('trust', 'reject', 'md5', 'password', 'scram-sha-256') AND NOT (auth_method = 'peer' AND "
		"(user_name = ARRAY[%s]::text[] OR coalesce(options::text, '') LIKE '%%map=%%')))", own_user()));
}

/*
 * The role as whom the pooler may ask about others, or NULL: the superuser that
 * is called as the system's user, where the first rule that may be for it on
 * the Unix socket lets that in.
 */
static const char *
lookup_role(bool reloaded)
{
	static char *known = NULL;
	char	   *role = own_user();
	StringInfoData database;

	if (!reloaded)
		return known;
	free(known);
	known = NULL;
	initStringInfo(&database);
	weir_append_quoted(&database, weir_database, '\'');
	if (!records_elsewhere && GetConfigOption("unix_socket_directories", false, false)[0] != '\0' &&
		run_bool(psprintf(
			"SELECT coalesce((SELECT auth_method = 'trust' OR auth_method = 'peer' AND options IS NULL FROM pg_catalog.pg_hba_file_rules "
			"WHERE type = 'local' AND error IS NULL "
			"AND (database && ARRAY['all', 'sameuser', 'samerole', %s]::text[] OR database::text ~ '[/@]') "
			"AND (user_name && ARRAY['all', %s]::text[] OR user_name::text ~ '[+/@]') ORDER BY line_number LIMIT 1), false) "
			"AND EXISTS (SELECT FROM pg_catalog.pg_authid WHERE rolname = %s AND rolsuper AND rolcanlogin)",
			database.data, role, role)))
	{
		run(psprintf("SELECT %s", role));
		if (is_writable(cell(0, 1)))
			known = strdup(cell(0, 1));
	}
	return known;
}

/* The loopback address on which the server listens, or else any */
static char *
own_address(void)
{
	char	   *listened = pstrdup(GetConfigOption("listen_addresses", false, false));
	char	   *first = NULL;

	for (char *word = strtok(listened, ", "); word != NULL; word = strtok(NULL, ", "))
	{
		if (strcmp(word, "*") == 0 || strcmp(word, "0.0.0.0") == 0 ||
			strcmp(word, "localhost") == 0 || strcmp(word, "127.0.0.1") == 0)
			return "127.0.0.1";
		if (first == NULL)
			first = strcmp(word, "::") == 0 ? "::1" : word;
	}
	return first;
}

/* The folder of the server's first Unix socket */
static void
own_folder(char *first)
{
	strlcpy(first, GetConfigOption("unix_socket_directories", false, false), MAXPGPATH);
	first[strcspn(first, ",")] = '\0';
}

/*
 * The pooler's way to this server, as pairs of an entry of its databases.  It
 * is another only where the server has read its files again.
 */
static const char *
own_endpoint(bool reloaded)
{
	static char *known = NULL;
	StringInfoData to;
	const char *host = weir_server_host;
	char	   *address = own_address();
	char		first[MAXPGPATH];

	if (known != NULL && !reloaded)
		return known;
	own_folder(first);
	if (host[0] == '\0')
		host = first[0] != '\0' && (address == NULL || may_use_unix_socket()) ? first : address;
	initStringInfo(&to);
	appendStringInfoString(&to, "host=");
	weir_append_quoted(&to, host != NULL ? host : "127.0.0.1", '\'');
	appendStringInfo(&to, " port=%d", PostPortNumber);
	free(known);
	known = strdup(to.data);
	return to.data;
}

static void
append_path(StringInfo to, const char *name, const char *path)
{
	if (path == NULL || path[0] == '\0')
		return;
	appendStringInfo(to, "%s = ", name);
	if (path[0] != '/')
		appendStringInfo(to, "%s/", DataDir);
	appendStringInfo(to, "%s\n", path);
}

/* The server's certificate, where it has one */
static void
append_tls(StringInfo to)
{
	bool		ssl = strcmp(GetConfigOption("ssl", false, false), "on") == 0;

	appendStringInfo(to, "client_tls_sslmode = %s\n", ssl ? "prefer" : "disable");
	if (!ssl)
		return;
	append_path(to, "client_tls_cert_file", GetConfigOption("ssl_cert_file", false, false));
	append_path(to, "client_tls_key_file", GetConfigOption("ssl_key_file", false, false));
	append_path(to, "client_tls_ca_file", GetConfigOption("ssl_ca_file", false, false));
}

/* What is not for anybody else to say */
static void
append_own(StringInfo to, const char *role)
{
	appendStringInfo(to, "auth_type = hba\nauth_file = %s\n", weir_file(users.name));
	if (records_elsewhere)
	{
		append_path(to, "auth_hba_file", GetConfigOption("hba_file", false, false));
		append_path(to, "auth_ident_file", GetConfigOption("ident_file", false, false));
	}
	else
	{
		appendStringInfo(to, "auth_hba_file = %s\n", weir_file(records.name));
		appendStringInfo(to, "auth_ident_file = %s\n", weir_file(maps.name));
	}
	appendStringInfo(to, "pidfile = %s\n", weir_file("weir.pid"));
	appendStringInfo(to, "auth_user = %s\nauth_dbname = %s\n", role != NULL ? role : "",
					 role != NULL ? LOOKUPS : "");
	appendStringInfo(to, "auth_query = %s\n", AUTH_QUERY);
	appendStringInfoString(to, "admin_users =\nstats_users =\n"
						   "logfile =\nlog_format = text\nuser =\n");
	/* The console is always there for the server's own functions */
	if (weir_text_setting("weir.unix_socket_dir")[0] == '\0')
		appendStringInfo(to, "unix_socket_dir = %s\n", weir_folder());
}

/*
 * Settings of single databases or roles: ALTER DATABASE and ALTER ROLE.  Those
 * of a role in one database are none of the pooler's.
 */
static void
append_lists(StringInfo to, const char *endpoint, bool of_users)
{
	char	   *open = NULL;	/* whose line it is */

	run(of_users ?
		"SELECT r.rolname, pg_catalog.split_part(c, '=', 1), pg_catalog.substr(c, pg_catalog.strpos(c, '=') + 1) "
		"FROM pg_catalog.pg_db_role_setting s JOIN pg_catalog.pg_authid r ON r.oid = s.setrole, "
		"pg_catalog.unnest(s.setconfig) c WHERE s.setdatabase = 0 AND c LIKE 'weir.%' ORDER BY 1, 2" :
		"SELECT d.datname, pg_catalog.split_part(c, '=', 1), pg_catalog.substr(c, pg_catalog.strpos(c, '=') + 1) "
		"FROM pg_catalog.pg_db_role_setting s JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase, "
		"pg_catalog.unnest(s.setconfig) c WHERE s.setrole = 0 AND c LIKE 'weir.%' ORDER BY 1, 2");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		char	   *name = cell(i, 1);
		char	   *text = cell(i, 3);
		StringInfoData pair;

		initStringInfo(&pair);
		/* The console's names, and the one that stands for all others */
		if (!is_writable(name) || strcmp(name, "weir") == 0 || strcmp(name, "pgbouncer") == 0 ||
			strcmp(name, "*") == 0 || strcmp(name, LOOKUPS) == 0 || !weir_append_pair(&pair, cell(i, 2), text != NULL ? text : "", of_users))
			continue;
		if (open == NULL || strcmp(open, name) != 0)
		{
			appendStringInfoChar(to, '\n');
			weir_append_quoted(to, name, '"');
			appendStringInfo(to, " = %s", of_users ? "" : endpoint);
			open = name;
		}
		appendStringInfoString(to, pair.data);
	}
	appendStringInfoChar(to, '\n');
}

/*
 * The names of our parameters that somebody has set for all.  This session has
 * those of its own database, too: ALTER DATABASE has set them for that alone,
 * so they are taken back to what the files say.
 */
static List *
names_set(bool reloaded)
{
	static List *names = NIL;
	MemoryContext before;

	if (!reloaded)
		return names;
	list_free_deep(names);
	names = NIL;
	run("SELECT s.name, s.source = 'configuration file' OR f.setting IS NOT NULL, s.source NOT IN ('configuration file', 'command line'), f.setting "
		"FROM pg_catalog.pg_settings s LEFT JOIN LATERAL (SELECT f.setting FROM pg_catalog.pg_file_settings f "
		"WHERE s.source NOT IN ('configuration file', 'command line') AND pg_catalog.lower(f.name) = s.name AND f.error IS NULL "
		"ORDER BY f.seqno DESC LIMIT 1) f ON true WHERE s.name LIKE 'weir.%' AND s.source <> 'default'");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		char	   *name = cell(i, 1);
		char	   *text = cell(i, 4);
		const char *boot = weir_boot_setting(name);

		if (cell(i, 3)[0] == 't' && boot != NULL)
			(void) set_config_option(name, text != NULL ? text : boot, PGC_SUSET,
									 PGC_S_SESSION, GUC_ACTION_SET, true, WARNING, false);
		if (cell(i, 2)[0] != 't')
			continue;
		before = MemoryContextSwitchTo(TopMemoryContext);
		names = lappend(names, pstrdup(name));
		MemoryContextSwitchTo(before);
	}

	/* The prefix is not reserved, so nobody else tells */
	run("SELECT DISTINCT pg_catalog.lower(name), sourcefile, sourceline FROM pg_catalog.pg_file_settings WHERE name ILIKE 'weir.%'");
	for (uint64 i = 0; i < SPI_processed; i++)
		if (weir_boot_setting(cell(i, 1)) == NULL && !weir_is_own_parameter(cell(i, 1)))
			ereport(WARNING,
					(errmsg("weir: there is no parameter \"%s\" (file \"%s\", line %s)",
							cell(i, 1), cell(i, 2), cell(i, 3))));
	return names;
}

static void
append_ini(StringInfo to, bool reloaded)
{
	const char *role = lookup_role(reloaded);
	char		folder[MAXPGPATH];
	List	   *set = names_set(reloaded);
	const char *endpoint = own_endpoint(reloaded);

	appendStringInfoString(to, "; Written by PostgreSQL from its parameters weir.*\n[pgbouncer]\n");
	append_tls(to);
	weir_append_settings(to, set, false);
	appendStringInfo(to, "[databases]\n* = %s\n", endpoint);
	if (weir_config_file[0] != '\0')
	{
		appendStringInfoString(to, "%include ");
		if (weir_config_file[0] != '/')
			appendStringInfo(to, "%s/", DataDir);
		appendStringInfo(to, "%s\n", weir_config_file);
	}
	appendStringInfoString(to, "[pgbouncer]\n");
	weir_append_settings(to, set, true);
	append_own(to, role);
	appendStringInfoString(to, "[databases]");
	append_lists(to, endpoint, false);
	if (role != NULL)
	{
		own_folder(folder);
		appendStringInfo(to, "\"%s\" = pool_size=1 port=%d host=", LOOKUPS, PostPortNumber);
		weir_append_quoted(to, folder, '\'');
		appendStringInfoString(to, " dbname=");
		weir_append_quoted(to, weir_database, '\'');
		appendStringInfoChar(to, '\n');
	}
	appendStringInfoString(to, "[users]");
	append_lists(to, endpoint, true);
}

/*
 * What PostgreSQL looks at as a session begins, beside who it is: whether a
 * role may connect to a database, and what is set for it there.  A session that
 * has begun is not asked again.
 */
static bool
sessions_begin_otherwise(void)
{
	static char known[33] = "";
	char	   *now;
	bool		otherwise;

	run("SELECT pg_catalog.md5(pg_catalog.concat("
		"(SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', oid, datname, datallowconn, datacl), ',' ORDER BY oid) FROM pg_catalog.pg_database), '/', "
		"(SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', roleid, member), ',' ORDER BY roleid, member) FROM pg_catalog.pg_auth_members), '/', "
		"(SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', setdatabase, setrole, setconfig), ',' ORDER BY setdatabase, setrole) "
		"FROM pg_catalog.pg_db_role_setting)))");
	now = cell(0, 1);
	otherwise = known[0] != '\0' && strcmp(known, now) != 0;
	strlcpy(known, now, sizeof(known));
	return otherwise;
}

/* At the beginning of the process: it is its own time later on */
void
weir_note_load_time(void)
{
	server_loaded = PgReloadTime;
}

/*
 * Write all that the pooler reads.  True: some of it is another than before.
 * "next": when it will be again, without anybody's doing.
 * "reconnect": sessions that have begun are not what new ones would be.
 */
bool
weir_write_files(bool reloaded, TimestampTz *next, bool *reconnect)
{
	StringInfoData text;
	bool		changed = false;

	*next = 0;
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	if (SPI_connect() != SPI_OK_CONNECT)
		ereport(ERROR, (errmsg_internal("weir: SPI_connect failed")));
	PushActiveSnapshot(GetTransactionSnapshot());

	if (reloaded)
		changed |= copy_records();
	initStringInfo(&text);
	append_users(&text, next);
	changed |= write_file(&users, text.data);
	resetStringInfo(&text);
	append_ini(&text, reloaded);
	changed |= write_file(&ini, text.data);
	if (sessions_begin_otherwise())
		*reconnect = true;

	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
	return changed;
}
