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

/// A redirect to another place has the client ask that by a GET, whose answer is of whatever is
/// there, and nothing was stored.
#[test]
fn answer_of_where_a_change_was_redirected_to_says_nothing() {
    for status in ["301 Moved Permanently", "303 See Other", "307 Temporary Redirect"] {
        let store = serve(move |asked| match asked.line.contains("elsewhere") {
            true => answer("200 OK", "", 3, b"any"),
            false => answer(status, "Location: /elsewhere\r\n", 0, b""),
        });
        let error = store.create("any/file", b"", None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        let is_followed = status.starts_with("303");
        assert_eq!(error.to_string().contains("name the bucket's own endpoint"), is_followed);
        assert_eq!(store.delete("any/file").unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(store.get("any/file", Part::Whole(3)).unwrap().unwrap().bytes, b"any");
    }
}

fn listing(keys: impl Iterator<Item = u32>) -> Vec<u8> {
    let object = |key| {
        format!(
            "<Contents><Key>any/{key:08}</Key><Size>1</Size><ETag>a</ETag>\
             <LastModified>2026-11-26T10:00:00Z</LastModified></Contents>"
        )
    };
    let objects: String = keys.map(object).collect();
    let text = format!("<ListBucketResult>{objects}</ListBucketResult>");
    answer("200 OK", "Content-Type: application/xml\r\n", text.len(), text.as_bytes())
}

/// A long list is read piece by piece, each from where the last has ended.
#[test]
fn list_that_does_not_begin_where_it_should_is_not_gone_on_with() {
    let store = serve(|_| listing(0..10_500));
    let first = store.list("any", None).unwrap();
    assert!(first.is_cut && first.objects.len() == 10_000);
    let after = &first.objects[9_999].key;
    let error = store.list("any", Some(after)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let store = serve(|_| listing((0..10_500).rev()));
    assert_eq!(store.list("any", None).unwrap_err().kind(), ErrorKind::Unsupported);
    // One that is whole may have any order.
    let store = serve(|_| listing((0..10).rev()));
    assert_eq!(store.list("any", None).unwrap().objects.len(), 10);
}
