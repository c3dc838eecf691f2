/*-------------------------------------------------------------------------
 *
 * ini.c
 *	  The pooler's configuration, but for the lists that it names.
 *
 * It is put together within a transaction of files.c.  What counts more comes
 * later: what the server knows, a file of the administrator's, parameters that
 * somebody has set, and what is for nobody else to say.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <pwd.h>
#include <unistd.h>

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "weir.h"

#define AUTH_QUERY \
	"SELECT rolname, CASE WHEN rolvaliduntil < pg_catalog.now() THEN NULL ELSE rolpassword END " \
	"FROM pg_catalog.pg_authid WHERE rolname OPERATOR(pg_catalog.=) $1 AND rolcanlogin"


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
	return weir_run_bool(psprintf(
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
	if (!weir_records_elsewhere && GetConfigOption("unix_socket_directories", false, false)[0] != '\0' &&
		weir_run_bool(psprintf(
			"SELECT coalesce((SELECT auth_method = 'trust' OR auth_method = 'peer' AND options IS NULL FROM pg_catalog.pg_hba_file_rules "
			"WHERE type = 'local' AND error IS NULL "
			"AND (database && ARRAY['all', 'sameuser', 'samerole', %s]::text[] OR database::text ~ '[/@]') "
			"AND (user_name && ARRAY['all', %s]::text[] OR user_name::text ~ '[+/@]') ORDER BY line_number LIMIT 1), false) "
			"AND EXISTS (SELECT FROM pg_catalog.pg_authid WHERE rolname = %s AND rolsuper AND rolcanlogin)",
			database.data, role, role)))
	{
		weir_query(psprintf("SELECT %s", role));
		if (weir_is_writable(weir_cell(0, 1)))
			known = strdup(weir_cell(0, 1));
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
	appendStringInfo(to, "auth_type = hba\nauth_file = %s\n", weir_file("users.txt"));
	if (weir_records_elsewhere)
	{
		append_path(to, "auth_hba_file", GetConfigOption("hba_file", false, false));
		append_path(to, "auth_ident_file", GetConfigOption("ident_file", false, false));
	}
	else
	{
		appendStringInfo(to, "auth_hba_file = %s\n", weir_file("pg_hba.conf"));
		appendStringInfo(to, "auth_ident_file = %s\n", weir_file("pg_ident.conf"));
	}
	appendStringInfo(to, "pidfile = %s\n", weir_file("weir.pid"));
	appendStringInfo(to, "auth_user = %s\nauth_dbname = %s\n", role != NULL ? role : "",
					 role != NULL ? WEIR_LOOKUPS : "");
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

	weir_query(of_users ?
		"SELECT r.rolname, pg_catalog.split_part(c, '=', 1), pg_catalog.substr(c, pg_catalog.strpos(c, '=') + 1) "
		"FROM pg_catalog.pg_db_role_setting s JOIN pg_catalog.pg_authid r ON r.oid = s.setrole, "
		"pg_catalog.unnest(s.setconfig) c WHERE s.setdatabase = 0 AND c LIKE 'weir.%' ORDER BY 1, 2" :
		"SELECT d.datname, pg_catalog.split_part(c, '=', 1), pg_catalog.substr(c, pg_catalog.strpos(c, '=') + 1) "
		"FROM pg_catalog.pg_db_role_setting s JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase, "
		"pg_catalog.unnest(s.setconfig) c WHERE s.setrole = 0 AND c LIKE 'weir.%' ORDER BY 1, 2");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		char	   *name = weir_cell(i, 1);
		char	   *text = weir_cell(i, 3);
		StringInfoData pair;

		initStringInfo(&pair);
		/* The console's names, and the one that stands for all others */
		if (!weir_is_writable(name) || strcmp(name, "weir") == 0 || strcmp(name, "pgbouncer") == 0 ||
			strcmp(name, "*") == 0 || strcmp(name, WEIR_LOOKUPS) == 0 || !weir_append_pair(&pair, weir_cell(i, 2), text != NULL ? text : "", of_users))
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
	weir_query("SELECT s.name, s.source = 'configuration file' OR f.setting IS NOT NULL, s.source NOT IN ('configuration file', 'command line'), f.setting "
		"FROM pg_catalog.pg_settings s LEFT JOIN LATERAL (SELECT f.setting FROM pg_catalog.pg_file_settings f "
		"WHERE s.source NOT IN ('configuration file', 'command line') AND pg_catalog.lower(f.name) = s.name AND f.error IS NULL "
		"ORDER BY f.seqno DESC LIMIT 1) f ON true WHERE s.name LIKE 'weir.%' AND s.source <> 'default'");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		char	   *name = weir_cell(i, 1);
		char	   *text = weir_cell(i, 4);
		const char *boot = weir_boot_setting(name);

		if (weir_cell(i, 3)[0] == 't' && boot != NULL)
			(void) set_config_option(name, text != NULL ? text : boot, PGC_SUSET,
									 PGC_S_SESSION, GUC_ACTION_SET, true, WARNING, false);
		if (weir_cell(i, 2)[0] != 't')
			continue;
		before = MemoryContextSwitchTo(TopMemoryContext);
		names = lappend(names, pstrdup(name));
		MemoryContextSwitchTo(before);
	}

	/* The prefix is not reserved, so nobody else tells */
	weir_query("SELECT DISTINCT pg_catalog.lower(name), sourcefile, sourceline FROM pg_catalog.pg_file_settings WHERE name ILIKE 'weir.%'");
	for (uint64 i = 0; i < SPI_processed; i++)
		if (weir_boot_setting(weir_cell(i, 1)) == NULL && !weir_is_own_parameter(weir_cell(i, 1)))
			ereport(WARNING,
					(errmsg("weir: there is no parameter \"%s\" (file \"%s\", line %s)",
							weir_cell(i, 1), weir_cell(i, 2), weir_cell(i, 3))));
	return names;
}

void
weir_append_ini(StringInfo to, bool reloaded)
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
		appendStringInfo(to, "\"%s\" = pool_size=1 port=%d host=", WEIR_LOOKUPS, PostPortNumber);
		weir_append_quoted(to, folder, '\'');
		appendStringInfoString(to, " dbname=");
		weir_append_quoted(to, weir_database, '\'');
		appendStringInfoChar(to, '\n');
	}
	appendStringInfoString(to, "[users]");
	append_lists(to, endpoint, true);
}
