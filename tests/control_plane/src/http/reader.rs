//! Owns reading HTTP/1.1 from a byte stream: requests for the servers, responses for the client.
//!
//! Bodies come by Content-Length, chunked, or (responses) to the end of the stream, with a cap. Knows nothing of faults or TLS.

use std::io::{self, Read, Write};

use super::message::{Header, Request, Response, find_header};

/// Both caps are far above what an agent sends; they only keep a broken peer from eating the machine.
const HEAD_CAP: usize = 64 * 1024;
const BODY_CAP: usize = 64 * 1024 * 1024;

/// Reads messages from one connection; keeps what came beyond the last one.
#[derive(Default)]
pub struct Reader {
    pending: Vec<u8>,
}

impl Reader {
    /// The next request; None when the peer closed between requests.
    pub fn request(&mut self, stream: &mut (impl Read + Write)) -> io::Result<Option<Request>> {
        let Some(head) = self.head(stream)? else {
            return Ok(None);
        };
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut parsed = httparse::Request::new(&mut headers);
        parsed.parse(&head).map_err(io::Error::other)?;
        let mut request = Request {
            method: parsed.method.unwrap_or_default().to_owned(),
            target: parsed.path.unwrap_or_default().to_owned(),
            headers: own_headers(parsed.headers),
            body: Vec::new(),
        };
        // curl waits a second for this before it sends a body of more than a mebibyte.
        if request
            .header("expect")
            .is_some_and(|v| v.eq_ignore_ascii_case("100-continue"))
        {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            stream.flush()?;
        }
        request.body = self.body(stream, &request.headers, Length::NoneMeansEmpty)?;
        Ok(Some(request))
    }

    /// The response to a request of our own client.
    pub fn response(&mut self, stream: &mut impl Read) -> io::Result<Response> {
        let head = self.head(stream)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut parsed = httparse::Response::new(&mut headers);
        parsed.parse(&head).map_err(io::Error::other)?;
        let (status, headers) = (parsed.code.unwrap_or(0), own_headers(parsed.headers));
        let body = match status {
            204 | 304 => Vec::new(),
            _ => self.body(stream, &headers, Length::NoneMeansToTheEnd)?,
        };
        Ok(Response {
            status,
            headers,
            body,
        })
    }

    fn head(&mut self, stream: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = find(&self.pending, b"\r\n\r\n") {
                return Ok(Some(self.pending.drain(..end + 4).collect()));
            }
            if self.pending.len() > HEAD_CAP {
                return Err(io::Error::other("request head over 64 KiB"));
            }
            if self.fill(stream)? == 0 {
                return match self.pending.is_empty() {
                    true => Ok(None),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    fn body(
        &mut self,
        stream: &mut impl Read,
        headers: &[Header],
        rule: Length,
    ) -> io::Result<Vec<u8>> {
        if find_header(headers, "transfer-encoding")
            .is_some_and(|v| v.eq_ignore_ascii_case("chunked"))
        {
            return self.chunked(stream);
        }
        if let Some(length) = find_header(headers, "content-length") {
            let length = length.parse().map_err(io::Error::other)?;
            return self.exactly(stream, length);
        }
        if let Length::NoneMeansToTheEnd = rule {
            while self.fill(stream)? > 0 {}
            return Ok(std::mem::take(&mut self.pending));
        }
        Ok(Vec::new())
    }

    fn chunked(&mut self, stream: &mut impl Read) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line(stream)?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(io::Error::other)?;
            if size == 0 {
                while !self.line(stream)?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.exactly(stream, size)?);
            self.line(stream)?;
        }
    }

    fn line(&mut self, stream: &mut impl Read) -> io::Result<String> {
        loop {
            if let Some(end) = find(&self.pending, b"\r\n") {
                let line: Vec<u8> = self.pending.drain(..end + 2).take(end).collect();
                return String::from_utf8(line).map_err(io::Error::other);
            }
            if self.fill(stream)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn exactly(&mut self, stream: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
        if length > BODY_CAP {
            return Err(io::Error::other("body over 64 MiB"));
        }
        while self.pending.len() < length {
            if self.fill(stream)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.pending.drain(..length).collect())
    }

    fn fill(&mut self, stream: &mut impl Read) -> io::Result<usize> {
        let mut buffer = [0; 16 * 1024];
        let got = stream.read(&mut buffer)?;
        self.pending.extend(buffer.iter().take(got));
        Ok(got)
    }
}

enum Length {
    NoneMeansEmpty,
    NoneMeansToTheEnd,
}

fn own_headers(headers: &[httparse::Header<'_>]) -> Vec<Header> {
    headers
        .iter()
        .map(|h| {
            (
                h.name.to_owned(),
                String::from_utf8_lossy(h.value).into_owned(),
            )
        })
        .collect()
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn two_requests_in_one_packet_are_two_requests() {
        let wire = b"POST /a?x=%2Fy HTTP/1.1\r\nContent-Length: 2\r\n\r\nhiGET /b HTTP/1.1\r\nAuthorization: Bearer t\r\n\r\n";
        let mut stream = Cursor::new(wire.to_vec());
        let mut reader = Reader::default();
        let first = reader.request(&mut stream).unwrap().unwrap();
        assert_eq!(
            (first.path(), first.body.as_slice()),
            ("/a", b"hi".as_slice())
        );
        assert_eq!(first.query("x").as_deref(), Some("/y"));
        let second = reader.request(&mut stream).unwrap().unwrap();
        assert_eq!((second.path(), second.bearer()), ("/b", Some("t")));
        assert!(reader.request(&mut stream).unwrap().is_none());
    }

    #[test]
    fn chunked_bodies_are_joined() {
        let wire = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n";
        let request = Reader::default().request(&mut Cursor::new(wire.to_vec()));
        assert_eq!(request.unwrap().unwrap().body, b"abcde");
    }
}
