//! As much of HTTP/1.1 (RFC 9112) as whoever watches a process speaks: one request without a body for each connection.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A request line and its headers at most.
const HEAD_BYTES_MAX: usize = 8 * 1024;
const HEADERS_MAX: usize = 64;
/// A request that has not come by then is not answered, and neither is who does not take the answer.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Other,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub method: Method,
    /// Without what is behind a question mark.
    pub path: String,
}

/// Reads one; `None` where there is nobody to answer.
pub fn read(mut stream: &TcpStream) -> Result<Request, Option<&'static str>> {
    let deadline = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Zero would be without end.
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1)))).map_err(|_| None)?;
        let mut piece = [0; 1024];
        let count = match stream.read(&mut piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.map_err(|_| None)?,
        };
        if count == 0 || left.is_zero() {
            return Err(None);
        }
        head.extend_from_slice(&piece[..count]);
        if let Some(request) = parse(&head).map_err(Some)? {
            return Ok(request);
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err(Some("the request is too long"));
        }
    }
}

/// `None`: more has to come.
fn parse(head: &[u8]) -> Result<Option<Request>, &'static str> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    if request.parse(head).map_err(|_| "this is no request of HTTP")?.is_partial() {
        return Ok(None);
    }
    let method = match request.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        _ => Method::Other,
    };
    let target = request.path.unwrap_or_default();
    let path = target.split(['?', '#']).next().unwrap_or_default().to_owned();
    Ok(Some(Request { method, path }))
}

/// Answers, and says that the connection ends.
pub fn answer(mut stream: &TcpStream, method: Method, status: u16, content_type: &str, body: &str) {
    let words = match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        _ => "Service Unavailable",
    };
    let length = body.len();
    let mut answer = format!(
        "HTTP/1.1 {status} {words}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    if method != Method::Head {
        answer.push_str(body);
    }
    let (deadline, mut rest) = (Instant::now() + PATIENCE, answer.as_bytes());
    while let left = deadline.saturating_duration_since(Instant::now())
        && !left.is_zero()
        && !rest.is_empty()
    {
        match stream.set_write_timeout(Some(left)).and_then(|()| stream.write(rest)) {
            Ok(count @ 1..) => rest = &rest[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Who does not take it has gone.
            Ok(0) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_however_they_are_cut() {
        let whole = b"GET /metrics?x=1 HTTP/1.1\r\nHost: h\r\nAccept: text/plain\r\n\r\n";
        for cut in 0..whole.len() {
            assert_eq!(parse(&whole[..cut]), Ok(None), "{cut}");
        }
        let request = Request { method: Method::Get, path: "/metrics".to_owned() };
        assert_eq!(parse(whole), Ok(Some(request)));
    }

    #[test]
    fn what_is_no_request_is_none() {
        for bytes in [&b"\0\0\0\x08\x04\xd2\x16\x2f\r\n\r\n"[..], b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01"] {
            parse(bytes).unwrap_err();
        }
        let post = parse(b"POST /metrics HTTP/1.1\r\n\r\n").unwrap().unwrap();
        assert_eq!(post.method, Method::Other);
    }
}
