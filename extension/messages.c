/*-------------------------------------------------------------------------
 *
 * messages.c
 *	  ParameterStatus messages, put together without memory that may throw.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "weir.h"

/* Text of the message under construction; kept, so it seldom has to grow */
static char *message = NULL;
static int	message_len;
static int	message_size = 0;
static bool message_failed;		/* ran out of memory */


/*
 * Messages
 *
 * All of this runs right before ReadyForQuery, outside any transaction and
 * outside PostgresMain's error handling of commands: an error thrown there
 * would be answered by another ReadyForQuery.  So memory comes from malloc,
 * and what fails is told as "unknown".
 */

/* Make room for one more element; returns NULL if there is no memory */
void *
weir_make_room(void *array, int n, int *size, size_t width)
{
	if (n == *size)
	{
		int			newsize = n > 0 ? n * 2 : 64;

		array = realloc(array, newsize * width);
		if (array != NULL)
			*size = newsize;
	}
	return array;
}

void
weir_message_byte(char c)
{
	char	   *p = weir_make_room(message, message_len, &message_size, 1);

	if (p == NULL)
	{
		message_failed = true;
		return;
	}
	message = p;
	message[message_len++] = c;
}

/* Start a ParameterStatus message */
void
weir_message_begin(const char *name)
{
	message_len = 0;
	message_failed = false;
	do
		weir_message_byte(*name);
	while (*name++);
}

/* Append text, escaped; "also" is one more character to escape, or NUL */
void
weir_message_text(const char *text, char also)
{
	for (; *text; text++)
	{
		unsigned char c = (unsigned char) *text;

		if (c >= 0x20 && c <= 0x7e && c != '\\' && c != (unsigned char) also)
			weir_message_byte(*text);
		else
		{
			weir_message_byte('\\');
			weir_message_byte('0' + (c >> 6));
			weir_message_byte('0' + ((c >> 3) & 7));
			weir_message_byte('0' + (c & 7));
		}
	}
}

/* Complete the message; false if it could not be built */
bool
weir_message_end(void)
{
	weir_message_byte('\0');
	return !message_failed;
}

/* What weir_message_send sends, beginning with the name */
const char *
weir_message_body(int *len)
{
	*len = message_len;
	return message;
}
