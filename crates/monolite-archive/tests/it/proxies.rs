//! What a proxy makes of a bucket's answers: none of it is taken for the bucket's word.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use monolite_archive::{BucketStore, ErrorKind, Part, Store as _};

/// What is asked for: the method, the address and the range that the request says.
struct Asked {
    line: String,
    range: Option<String>,
}

/// A server of HTTP that answers each request by a closure, until the test ends.
fn serve(answer: impl FnMut(&Asked) -> Vec<u8> + Send + 'static) -> BucketStore {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = Arc::new(Mutex::new(answer));
    thread::spawn(move || {
        for client in listener.incoming() {
            let answer = Arc::clone(&answer);
            thread::spawn(move || {
                let mut client = client.unwrap();
                while let Some(asked) = read(&mut client) {
                    let answer = answer.lock().unwrap()(&asked);
                    if client.write_all(&answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let url = format!(
        "s3://test/any?endpoint=http://127.0.0.1:{port}&region=us-east-1&allow_http=true&\
         access_key_id=k&secret_access_key=s"
    );
    BucketStore::open(&url).unwrap().0
}

/// The next request, which has no body.
fn read(client: &mut TcpStream) -> Option<Asked> {
    let (mut text, mut byte) = (Vec::new(), [0]);
    while !text.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).ok()?;
        text.push(byte[0]);
    }
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().next().unwrap().to_owned();
    let range = text.lines().find_map(|line| line.strip_prefix("range: ")).map(str::to_owned);
    Some(Asked { line, range })
}

fn answer(status: &str, headers: &str, len: usize, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\nETag: \"any\"\r\nLast-Modified: Thu, 26 Nov 2026 10:00:00 GMT\r\n\
         Content-Length: {len}\r\n{headers}\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// What is said of the range is right, and the body is another: a lost answer, that is asked for
/// again, and neither a damaged file nor another one's.
#[test]
fn body_of_another_length_than_its_range_is_no_answer() {
    for len in [0, 99, 101, 8 << 20] {
        let store = serve(move |asked| {
            if asked.line.starts_with("HEAD") {
                return answer("200 OK", "", 1_000, b"");
            }
            let range = match asked.range.as_deref() {
                Some("bytes=-100" | "bytes=900-999") => "bytes 900-999/1000",
                _ => "bytes 0-99/1000",
            };
            let headers = format!("Content-Range: {range}\r\n");
            answer("206 Partial Content", &headers, len, &vec![7; len])
        });
        for part in [Part::Range(0..100), Part::End(100)] {
            let error = store.get("any/file", part).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Lost, "{len}: {error}");
            assert!(error.to_string().contains("than the 100 bytes"), "{error}");
        }
    }
}
