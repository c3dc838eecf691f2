/*-------------------------------------------------------------------------
 *
 * console.c
 *	  What SQL asks the pooler, and has it do.
 *
 * The pooler's console speaks PostgreSQL's protocol on its Unix socket, and
 * knows the server's own system user by the kernel.  The few messages of it are
 * written here: a library would bring a whole client.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/timestamp.h"

#include "weir.h"

/* The longest message that is read: a row of the console has some hundred bytes */
#define MESSAGE_MAX		(1024 * 1024)

PG_FUNCTION_INFO_V1(weir_show);
PG_FUNCTION_INFO_V1(weir_pause);
PG_FUNCTION_INFO_V1(weir_resume);
PG_FUNCTION_INFO_V1(weir_reconnect);
PG_FUNCTION_INFO_V1(weir_kill);
PG_FUNCTION_INFO_V1(weir_kill_client);

typedef struct Console
{
	int			fd;
	StringInfoData in;			/* what has come; read up to its cursor */
	MemoryContextCallback gone; /* closes it whatever happens */
} Console;

/* What SHOW has answered */
typedef struct Answer
{
	char	  **names;
	int			nnames;
	List	   *rows;			/* of JSON texts */
} Answer;


static void
hang_up(void *arg)
{
	Console    *console = arg;

	if (console->fd >= 0)
		close(console->fd);
	console->fd = -1;
}

static void lost(const char *why) __attribute__((noreturn));
static void refused(const char *body, int len) __attribute__((noreturn));

static void
lost(const char *why)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("the pooler cannot be asked: %s", why),
			 weir_enabled ? 0 : errhint("weir.enabled is off.")));
}

/* Wait until the socket is ready, or somebody wants us to end */
static void
wait_for(Console *console, int event)
{
	int			rc = WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | event,
									   console->fd, -1, PG_WAIT_EXTENSION);

	if (rc & WL_LATCH_SET)
	{
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

static void
send_all(Console *console, const char *data, int len)
{
	while (len > 0)
	{
		ssize_t		n = send(console->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n >= 0)
		{
			data += n;
			len -= n;
		}
		else if (errno == EAGAIN || errno == EWOULDBLOCK)
			wait_for(console, WL_SOCKET_WRITEABLE);
		else if (errno != EINTR)
			lost(strerror(errno));
	}
}

/* At least that much of what has not been read is there */
static void
need(Console *console, int len)
{
	char		buf[8192];

	while (console->in.len - console->in.cursor < len)
	{
		ssize_t		n = recv(console->fd, buf, sizeof(buf), MSG_DONTWAIT);

		if (n > 0)
			appendBinaryStringInfo(&console->in, buf, n);
		else if (n == 0)
			lost("it has closed the connection");
		else if (errno == EAGAIN || errno == EWOULDBLOCK)
			wait_for(console, WL_SOCKET_READABLE);
		else if (errno != EINTR)
			lost(strerror(errno));
	}
}

static uint32
number_at(const char *at)
{
	uint32		number;

	memcpy(&number, at, sizeof(number));
	return ntohl(number);
}

/* The next message: its type, and its body behind the length */
static char
message(Console *console, const char **body, int *len)
{
	StringInfo	in = &console->in;
	char		type;
	uint32		n;

	/* Room for the next one */
	if (in->cursor > 0)
	{
		memmove(in->data, in->data + in->cursor, in->len - in->cursor);
		in->len -= in->cursor;
		in->cursor = 0;
	}
	need(console, 5);
	type = in->data[0];
	n = number_at(in->data + 1);
	if (n < 4 || n > MESSAGE_MAX)
		lost("it does not speak the protocol");
	need(console, 1 + n);
	*body = in->data + 5;
	*len = n - 4;
	in->cursor = 1 + n;
	return type;
}

/* A text within a message, which has its end there */
static const char *
text_at(const char *body, int len, int *at)
{
	const char *text = body + *at;
	const char *end = *at < len ? memchr(text, '\0', len - *at) : NULL;

	if (end == NULL)
		lost("it does not speak the protocol");
	*at += end - text + 1;
	return text;
}

static char *
own_text(const char *text, int len)
{
	char	   *copy = pnstrdup(text, len);

	return pg_any_to_server(copy, strlen(copy), PG_UTF8);
}

/* What it says is wrong, as an error of ours */
static void
refused(const char *body, int len)
{
	const char *said = "";
	int			code = ERRCODE_CONNECTION_FAILURE;
	int			at = 0;

	while (at < len && body[at] != '\0')
	{
		char		field = body[at++];
		const char *text = text_at(body, len, &at);

		if (field == 'M')
			said = text;
		if (field == 'C' && strlen(text) == 5)
			code = MAKE_SQLSTATE(text[0], text[1], text[2], text[3], text[4]);
	}
	ereport(ERROR, (errcode(code), errmsg("%s", own_text(said, strlen(said)))));
}

/* Its socket, or -1 and why not */
static int
reach(const char **why)
{
	const char *folder;
	struct sockaddr_un address;
	struct ucred peer;
	socklen_t	size = sizeof(peer);
	char		path[MAXPGPATH];
	int			fd;

	weir_define_settings();
	folder = weir_text_setting("weir.unix_socket_dir");
	snprintf(path, sizeof(path), "%s/.s.PGSQL.%d", folder[0] ? folder : weir_folder(),
			 weir_number_setting("weir.listen_port"));
	memset(&address, 0, sizeof(address));
	address.sun_family = AF_UNIX;
	*why = "the path of its socket is too long";
	if (strlen(path) >= sizeof(address.sun_path))
		return -1;
	strcpy(address.sun_path, path);
	if (path[0] == '@')
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *) &address,
						   offsetof(struct sockaddr_un, sun_path) + strlen(path) + (path[0] != '@')) == 0)
	{
		/* Whoever listens there must be who we are: the folder may be anybody's */
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
			peer.uid == geteuid())
			return fd;
		*why = "another user listens on its socket";
	}
	else
		*why = strerror(errno);
	if (fd >= 0)
		close(fd);
	return -1;
}

static const char startup[] = "\0\3\0\0user\0pgbouncer\0database\0pgbouncer\0";

/*
 * Tell it a command and do not wait.  Returns the socket, to be kept as long as
 * it has something to say, or -1.
 */
int
weir_tell_console(const char *command)
{
	const char *why;
	char		buf[256];
	uint32		size = htonl(sizeof(startup) + 4);
	int			len = strlen(command) + 1;
	int			fd = reach(&why);

	if (fd < 0)
		return -1;
	memcpy(buf, &size, 4);
	memcpy(buf + 4, startup, sizeof(startup));
	size = htonl(len + 4);
	buf[4 + sizeof(startup)] = 'Q';
	memcpy(buf + 5 + sizeof(startup), &size, 4);
	strlcpy(buf + 9 + sizeof(startup), command, sizeof(buf) - 9 - sizeof(startup));
	len += 9 + sizeof(startup);
	if (send(fd, buf, len, MSG_NOSIGNAL) == len && shutdown(fd, SHUT_WR) == 0)
		return fd;
	close(fd);
	return -1;
}

static Console *
call(void)
{
	Console    *console = palloc0(sizeof(Console));
	uint32		size = htonl(sizeof(startup) + 4);
	const char *body;
	const char *why;
	int			len;
	char		type;

	console->fd = reach(&why);
	if (console->fd < 0)
		lost(why);
	console->gone.func = hang_up;
	console->gone.arg = console;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &console->gone);

	initStringInfo(&console->in);
	send_all(console, (char *) &size, 4);
	send_all(console, startup, sizeof(startup));
	while ((type = message(console, &body, &len)) != 'Z')
	{
		if (type == 'E')
			refused(body, len);
		if (type == 'R' && (len < 4 || number_at(body) != 0))
			lost("it asks who we are");
	}
	return console;
}

/* The columns of what follows */
static void
take_names(Answer *answer, const char *body, int len)
{
	int			at = 2;

	if (len < 2)
		lost("it does not speak the protocol");
	answer->nnames = ((unsigned char) body[0] << 8) | (unsigned char) body[1];
	answer->names = palloc0(sizeof(char *) * (answer->nnames + 1));
	for (int i = 0; i < answer->nnames; i++)
	{
		const char *name = text_at(body, len, &at);

		answer->names[i] = own_text(name, strlen(name));
		at += 18;
	}
}

static void
take_row(Answer *answer, const char *body, int len)
{
	StringInfoData row;
	int			at = 2;
	int			n = len < 2 ? 0 : ((unsigned char) body[0] << 8) | (unsigned char) body[1];

	initStringInfo(&row);
	appendStringInfoChar(&row, '{');
	for (int i = 0; i < Min(n, answer->nnames); i++)
	{
		int			size;

		if (at + 4 > len)
			lost("it does not speak the protocol");
		size = (int) number_at(body + at);
		at += 4;
		if (size > len - at)
			lost("it does not speak the protocol");
		if (i > 0)
			appendStringInfoChar(&row, ',');
		escape_json(&row, answer->names[i]);
		appendStringInfoChar(&row, ':');
		if (size < 0)
			appendStringInfoString(&row, "null");
		else
		{
			escape_json(&row, own_text(body + at, size));
			at += size;
		}
	}
	appendStringInfoChar(&row, '}');
	answer->rows = lappend(answer->rows, row.data);
}

/* One command, up to its end */
static void
ask(const char *command, Answer *answer)
{
	Console    *console = call();
	char	   *sent = pg_server_to_any(command, strlen(command), PG_UTF8);
	uint32		size = htonl(strlen(sent) + 5);
	const char *body;
	int			len;
	char		type;

	send_all(console, "Q", 1);
	send_all(console, (char *) &size, 4);
	send_all(console, sent, strlen(sent) + 1);
	while ((type = message(console, &body, &len)) != 'Z')
	{
		if (type == 'E')
			refused(body, len);
		else if (type == 'T')
			take_names(answer, body, len);
		else if (type == 'D')
			take_row(answer, body, len);
	}
	hang_up(console);
}

/*
 * weir.show(what text) returns setof json
 *	  The rows of the console's SHOW: an object each, by the columns' names.
 */
Datum
weir_show(PG_FUNCTION_ARGS)
{
	FuncCallContext *context;
	Answer	   *answer;
	Datum		row;

	if (SRF_IS_FIRSTCALL())
	{
		char	   *what = text_to_cstring(PG_GETARG_TEXT_PP(0));
		MemoryContext before;

		if (what[strspn(what, "abcdefghijklmnopqrstuvwxyz_")] != '\0' ||
			strcmp(what, "fds") == 0 || what[0] == '\0')
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("there is nothing to show that is called \"%s\"", what)));
		context = SRF_FIRSTCALL_INIT();
		before = MemoryContextSwitchTo(context->multi_call_memory_ctx);
		answer = palloc0(sizeof(Answer));
		ask(psprintf("SHOW %s", what), answer);
		context->user_fctx = answer;
		MemoryContextSwitchTo(before);
	}
	context = SRF_PERCALL_SETUP();
	answer = context->user_fctx;
	if (context->call_cntr >= (uint64) list_length(answer->rows))
		SRF_RETURN_DONE(context);
	/* That macro counts first */
	row = CStringGetTextDatum(list_nth(answer->rows, context->call_cntr));
	SRF_RETURN_NEXT(context, row);
}

/* A command about one database, or about all where it is NULL */
static Datum
command(FunctionCallInfo fcinfo, const char *verb)
{
	StringInfoData line;
	Answer		answer = {0};

	initStringInfo(&line);
	appendStringInfoString(&line, verb);
	if (!PG_ARGISNULL(0))
	{
		appendStringInfoChar(&line, ' ');
		weir_append_quoted(&line, NameStr(*PG_GETARG_NAME(0)), '"');
	}
	ask(line.data, &answer);
	PG_RETURN_VOID();
}

Datum
weir_pause(PG_FUNCTION_ARGS)
{
	return command(fcinfo, "PAUSE");
}

Datum
weir_resume(PG_FUNCTION_ARGS)
{
	return command(fcinfo, "RESUME");
}

Datum
weir_reconnect(PG_FUNCTION_ARGS)
{
	return command(fcinfo, "RECONNECT");
}

Datum
weir_kill(PG_FUNCTION_ARGS)
{
	return command(fcinfo, "KILL");
}

Datum
weir_kill_client(PG_FUNCTION_ARGS)
{
	Answer		answer = {0};

	ask(psprintf("KILL_CLIENT " INT64_FORMAT, PG_GETARG_INT64(0)), &answer);
	PG_RETURN_VOID();
}
