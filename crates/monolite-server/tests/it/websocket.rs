//! Many streams on one WebSocket.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::served::Served;

pub(crate) struct Client(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Client {
    /// Connects with these subprotocols; gives what was chosen.
    pub(crate) async fn connect(served: &Served, protocols: &str) -> (Client, Option<String>) {
        let url = served.url.replace("http://", "ws://");
        let mut request = url.into_client_request().unwrap();
        if !protocols.is_empty() {
            let protocols = protocols.parse().unwrap();
            request.headers_mut().insert("sec-websocket-protocol", protocols);
        }
        let (socket, answer) = connect_async(request).await.unwrap();
        let chosen = answer.headers().get("sec-websocket-protocol");
        (Client(socket), chosen.map(|chosen| chosen.to_str().unwrap().to_owned()))
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.0.send(Message::text(message.to_string())).await.unwrap();
    }

    async fn request(&mut self, number: i32, request: Value) {
        let message = json!({ "type": "request", "request_id": number, "request": request });
        self.send(message).await;
    }

    pub(crate) async fn receive(&mut self) -> Value {
        loop {
            match self.0.next().await.unwrap().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Close(frame) => return json!(u16::from(frame.unwrap().code)),
                _ => {}
            }
        }
    }

    pub(crate) async fn answer(&mut self, number: i32, request: Value) -> Value {
        self.request(number, request).await;
        let answer = self.receive().await;
        assert_eq!(answer["request_id"], number, "{answer}");
        answer
    }
}

pub(crate) fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new().unwrap().block_on(test);
}

pub(crate) fn execute(stream: i32, sql: &str) -> Value {
    json!({ "type": "execute", "stream_id": stream, "stmt": { "sql": sql } })
}

#[test]
fn streams_have_transactions_of_their_own() {
    let served = Served::one();
    run(async {
        let (mut client, chosen) = Client::connect(&served, "hrana1, hrana2, other").await;
        assert_eq!(chosen.as_deref(), Some("hrana2"));
        // Requests may follow before the answer to hello.
        client.send(json!({ "type": "hello", "jwt": null })).await;
        client.request(1, json!({ "type": "open_stream", "stream_id": 1 })).await;
        assert_eq!(client.receive().await["type"], "hello_ok");
        assert_eq!(client.receive().await["response"]["type"], "open_stream");
        client.answer(2, json!({ "type": "open_stream", "stream_id": 2 })).await;
        client.answer(3, execute(1, "CREATE TABLE t(x)")).await;
        client.answer(4, execute(1, "BEGIN")).await;
        client.answer(5, execute(1, "INSERT INTO t VALUES (1)")).await;
        let count = "SELECT count(*) FROM t";
        let seen = client.answer(6, execute(2, count)).await;
        assert_eq!(seen["response"]["result"]["rows"][0][0]["value"], "0");
        client.answer(7, execute(1, "COMMIT")).await;
        let stored = json!({ "type": "store_sql", "sql_id": 9, "sql": count });
        client.answer(8, stored).await;
        let by_number = json!({ "type": "execute", "stream_id": 2, "stmt": { "sql_id": 9 } });
        let seen = client.answer(9, by_number).await;
        assert_eq!(seen["response"]["result"]["rows"][0][0]["value"], "1");
        client.answer(10, execute(2, "BEGIN")).await;
        client.answer(11, execute(2, "DELETE FROM t")).await;
        client.answer(12, json!({ "type": "close_stream", "stream_id": 2 })).await;
        let seen = client.answer(13, execute(1, count)).await;
        assert_eq!(seen["response"]["result"]["rows"][0][0]["value"], "1", "it was rolled back");
        let gone = client.answer(14, execute(2, count)).await;
        assert_eq!(gone["error"]["code"], "STREAM_NOT_FOUND");
    });
}

#[test]
fn a_cursor_is_fetched_piece_by_piece() {
    let served = Served::one();
    run(async {
        let (mut client, _) = Client::connect(&served, "hrana3").await;
        client.send(json!({ "type": "hello" })).await;
        client.receive().await;
        client.answer(1, json!({ "type": "open_stream", "stream_id": 1 })).await;
        let steps = json!([{ "stmt": { "sql": "VALUES (1), (2), (3)" } }]);
        let open = json!({
            "type": "open_cursor", "stream_id": 1, "cursor_id": 5, "batch": { "steps": steps },
        });
        client.answer(2, open).await;
        let fetch = json!({ "type": "fetch_cursor", "cursor_id": 5, "max_count": 3 });
        let first = client.answer(3, fetch.clone()).await;
        let entries = first["response"]["entries"].as_array().unwrap().clone();
        let kinds: Vec<_> = entries.iter().map(|entry| entry["type"].as_str().unwrap()).collect();
        assert_eq!(
            (kinds, &first["response"]["done"]),
            (vec!["step_begin", "row", "row"], &json!(false))
        );
        let rest = client.answer(4, fetch).await;
        assert_eq!(rest["response"]["entries"][1]["type"], "step_end", "{rest}");
        assert_eq!(rest["response"]["done"], true);
        client.answer(5, json!({ "type": "close_cursor", "cursor_id": 5 })).await;
    });
}

#[test]
fn who_breaks_the_protocol_is_told_by_a_code() {
    let served = Served::one();
    run(async {
        let (mut early, chosen) = Client::connect(&served, "").await;
        assert_eq!(chosen, None, "version 1 has no name");
        early.request(1, json!({ "type": "open_stream", "stream_id": 1 })).await;
        assert_eq!(early.receive().await, 1008, "before hello");
        let (mut wrong, _) = Client::connect(&served, "hrana2").await;
        wrong.0.send(Message::binary(vec![1])).await.unwrap();
        assert_eq!(wrong.receive().await, 1003, "not text");
        let (mut garbled, _) = Client::connect(&served, "hrana2").await;
        garbled.0.send(Message::text("{")).await.unwrap();
        assert_eq!(garbled.receive().await, 1007, "no JSON");
        let (_, chosen) = Client::connect(&served, "hrana2, hrana3-protobuf").await;
        assert_eq!(chosen.as_deref(), Some("hrana3-protobuf"));
    });
}

#[test]
fn a_stranger_sends_no_large_message() {
    let served = Served::one();
    run(async {
        let (mut stranger, _) = Client::connect(&served, "hrana2").await;
        stranger.send(json!({ "type": "hello", "jwt": "x".repeat(70_000) })).await;
        assert_eq!(stranger.receive().await, 1008);
        let (mut client, _) = Client::connect(&served, "hrana2").await;
        client.send(json!({ "type": "hello" })).await;
        client.request(1, json!({ "type": "open_stream", "stream_id": 1 })).await;
        client.request(2, execute(1, &format!("SELECT 7{}", " ".repeat(600_000)))).await;
        for _ in 0..2 {
            client.receive().await;
        }
        let large = client.receive().await;
        assert_eq!(large["response"]["result"]["rows"][0][0]["value"], "7", "{large}");
    });
}

#[test]
fn each_hello_is_answered_and_a_cursor_goes_with_its_stream() {
    let served = Served::one();
    run(async {
        let (mut client, _) = Client::connect(&served, "hrana3").await;
        for _ in 0..2 {
            client.send(json!({ "type": "hello" })).await;
            assert_eq!(client.receive().await["type"], "hello_ok");
        }
        let batch = json!({ "steps": [] });
        let open = json!({ "type": "open_cursor", "stream_id": 1, "cursor_id": 5, "batch": batch });
        let fetch = json!({ "type": "fetch_cursor", "cursor_id": 5, "max_count": 3 });
        assert_eq!(client.answer(1, open.clone()).await["error"]["code"], "STREAM_NOT_FOUND");
        assert_eq!(client.answer(2, fetch.clone()).await["error"]["code"], "CURSOR_NOT_FOUND");
        client.answer(3, json!({ "type": "open_stream", "stream_id": 1 })).await;
        client.answer(4, open).await;
        client.answer(5, json!({ "type": "close_stream", "stream_id": 1 })).await;
        assert_eq!(client.answer(6, fetch).await["error"]["code"], "CURSOR_NOT_FOUND");
    });
}
