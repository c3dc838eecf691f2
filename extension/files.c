/*-------------------------------------------------------------------------
 *
 * files.c
 *	  What the pooler reads, written from what the server knows.
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
#include <sys/stat.h>
#include <unistd.h>

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
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
bool		weir_records_elsewhere = false;


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
bool
weir_is_writable(const char *name)
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

void
weir_query(const char *query)
{
	if (SPI_execute(query, true, 0) != SPI_OK_SELECT)
		ereport(ERROR, (errmsg_internal("weir: %s", query)));
}

char *
weir_cell(uint64 row, int column)
{
	return SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column);
}

bool
weir_run_bool(const char *query)
{
	bool		isnull;

	weir_query(query);
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
	weir_query("SELECT rolname, CASE WHEN rolvaliduntil <= pg_catalog.now() THEN NULL ELSE rolpassword END, "
		"CASE WHEN rolvaliduntil > pg_catalog.now() AND rolvaliduntil < 'infinity' THEN rolvaliduntil END "
		"FROM pg_catalog.pg_authid WHERE rolcanlogin ORDER BY 1");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		char	   *name = weir_cell(i, 1);
		char	   *secret = weir_cell(i, 2);
		bool		isnull;
		Datum		until = SPI_getbinval(SPI_tuptable->vals[i],
										  SPI_tuptable->tupdesc, 3, &isnull);

		if (!isnull && (*next == 0 || DatumGetTimestampTz(until) < *next))
			*next = DatumGetTimestampTz(until);
		if (!weir_is_writable(name))
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
	if (records.text == NULL && !weir_records_elsewhere && stat(hba, &found) == 0 &&
		found.st_mtime > timestamptz_to_time_t(server_loaded) + 1 &&
		(kept = read_whole(weir_file(records.name))) != NULL)
	{
		records.text = strdup(kept);
		return false;
	}
	if (!weir_run_bool("SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_hba_file_rules WHERE error IS NOT NULL)") &&
		(records.text != NULL || weir_records_elsewhere))
	{
		ereport(LOG,
				(errmsg("weir: pg_hba.conf was not reloaded, and the pooler goes by what it was")));
		return false;
	}
	weir_records_elsewhere = hba_text == NULL || names_others(hba_text) ||
		(ident_text != NULL && names_others(ident_text));
	if (weir_records_elsewhere)
		return false;
	changed |= write_file(&records, psprintf("local \"%s\" all reject\nhost \"%s\" all all reject\n%s",
												  WEIR_LOOKUPS, WEIR_LOOKUPS, hba_text));
	changed |= write_file(&maps, ident_text != NULL ? ident_text : "");
	return changed;
}


/* True: it is not what it was, or that and more behind it */
static bool
has_changed(char **known, const char *query)
{
	char	   *now;
	bool		changed;

	weir_query(query);
	now = weir_cell(0, 1);
	if (now == NULL)
		now = "";
	changed = *known != NULL && strncmp(*known, now, strlen(*known)) != 0;
	free(*known);
	*known = strdup(now);
	return changed;
}

/*
 * What PostgreSQL looks at as a session begins, and not again: which role and
 * database a name means, whether the one may connect to the other, and what is
 * set there.  Those that are new have numbers behind all others, and no session.
 */
static bool
sessions_begin_otherwise(void)
{
	static char *known[4];
	bool		changed = false;

	changed |= has_changed(&known[0], "SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', oid, rolname), ';' ORDER BY oid) || ';' FROM pg_catalog.pg_authid");
	changed |= has_changed(&known[1], "SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', oid, datname, datallowconn, datacl), ';' ORDER BY oid) || ';' "
						   "FROM pg_catalog.pg_database");
	/* Of these what is new counts, too */
	changed |= has_changed(&known[2], "SELECT pg_catalog.md5(pg_catalog.string_agg(pg_catalog.concat_ws(' ', roleid, member), ',' ORDER BY roleid, member)) "
						   "FROM pg_catalog.pg_auth_members");
	changed |= has_changed(&known[3], "SELECT pg_catalog.md5(pg_catalog.string_agg(pg_catalog.concat_ws(' ', setdatabase, setrole, setconfig), ',' ORDER BY setdatabase, setrole)) "
						   "FROM pg_catalog.pg_db_role_setting");
	return changed;
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
	weir_append_ini(&text, reloaded);
	changed |= write_file(&ini, text.data);
	if (sessions_begin_otherwise())
		*reconnect = true;

	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
	return changed;
}
