//! Owns a server for a test, and a client of it that says JSON.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use monolite_server::{Config, Listening, Server};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// A server that is stopped when this is dropped.
pub(crate) struct Served {
    pub(crate) url: String,
    /// Where operators look.
    pub(crate) admin: String,
    pub(crate) directory: Arc<TempDir>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    /// One with one database.
    pub(crate) fn one() -> Served {
        Served::with(|directory, config| config.file = Some(directory.join("one.db")))
    }

    /// One for all databases of its directory.
    pub(crate) fn many() -> Served {
        Served::with(|directory, config| config.directory = Some(directory))
    }

    /// One that `set` has configured, in its own directory.
    pub(crate) fn with(set: impl FnOnce(PathBuf, &mut Config)) -> Served {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        set(directory.path().to_owned(), &mut config);
        let server = Server::new(&config).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let (say, said) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async move {
                let listening = if config.handover.is_some() {
                    server.listen().await.unwrap()
                } else {
                    let bind = || tokio::net::TcpListener::bind("127.0.0.1:0");
                    Listening::on(bind().await.unwrap(), Some(bind().await.unwrap()))
                };
                let admin = listening.admin_address().unwrap().unwrap();
                say.send([listening.address().unwrap(), admin]).unwrap();
                server.serve(listening, async { drop(stopped.await) }).await;
            });
        });
        let [url, admin] = said.recv().unwrap().map(|address| format!("http://{address}"));
        let directory = Arc::new(directory);
        Served { url, admin, directory, stop: Some(stop), thread: Some(thread) }
    }

    /// What the server answers to a POST at `path`: the status and the body.
    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.post_as(None, path, body)
    }

    /// As [`Served::post`], with a token.
    pub(crate) fn post_as(&self, token: Option<&str>, path: &str, body: &Value) -> (u16, Value) {
        Served::post_to(&self.url, token, path, body)
    }

    /// As [`Served::post_as`], to a server at `url`.
    pub(crate) fn post_to(
        url: &str,
        token: Option<&str>,
        path: &str,
        body: &Value,
    ) -> (u16, Value) {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let mut request = agent.post(format!("{url}{path}"));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut answer = request.send_json(body).unwrap();
        let text = answer.body_mut().read_to_string().unwrap();
        let line = text.lines().next().unwrap_or_default();
        let body = serde_json::from_str(&text).or_else(|_| serde_json::from_str(line));
        (answer.status().as_u16(), body.unwrap_or(Value::String(text)))
    }

    /// The values that the server answers to a POST at `path`, one a line.
    pub(crate) fn lines(&self, path: &str, body: &Value) -> Vec<Value> {
        let mut answer = ureq::post(format!("{}{path}", self.url)).send_json(body).unwrap();
        let text = answer.body_mut().read_to_string().unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The first of these values; the others are left unread, and the connection is closed.
    pub(crate) fn first_line(&self, path: &str, body: &Value) -> Value {
        let mut answer = ureq::post(format!("{}{path}", self.url)).send_json(body).unwrap();
        let mut line = String::new();
        BufReader::new(answer.body_mut().as_reader()).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// The status of its health.
    pub(crate) fn health(&self) -> u16 {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        agent.get(format!("{}/health", self.url)).call().unwrap().status().as_u16()
    }

    /// Asks it to stop, as a signal does.
    pub(crate) fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Stops it, and gives its files.
    pub(crate) fn end(self) -> Arc<TempDir> {
        Arc::clone(&self.directory)
    }

    /// A new stream.
    pub(crate) fn stream(&self) -> Client<'_> {
        Client { served: self, baton: None }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().expect("it is ended once").join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

/// A stream of a client.
pub(crate) struct Client<'s> {
    served: &'s Served,
    pub(crate) baton: Option<String>,
}

impl Client<'_> {
    /// The results of `requests`, in order.
    pub(crate) fn send(&mut self, requests: &[Value]) -> Vec<Value> {
        let body = json!({ "baton": self.baton, "requests": requests });
        let (status, answer) = self.served.post("/v2/pipeline", &body);
        assert_eq!(status, 200, "{answer}");
        self.baton = answer["baton"].as_str().map(str::to_owned);
        answer["results"].as_array().unwrap().clone()
    }

    /// The response to one request, or its error.
    pub(crate) fn one(&mut self, request: Value) -> Result<Value, Value> {
        let result = self.send(&[request]).remove(0);
        match result["type"].as_str() {
            Some("ok") => Ok(result["response"].clone()),
            _ => Err(result["error"].clone()),
        }
    }

    /// The result of one statement, or its error.
    pub(crate) fn execute(&mut self, sql: &str) -> Result<Value, Value> {
        let stmt = json!({ "sql": sql });
        let response = self.one(json!({ "type": "execute", "stmt": stmt }))?;
        Ok(response["result"].clone())
    }

    /// The one value of a query, as the protocol has it.
    pub(crate) fn value(&mut self, sql: &str) -> Value {
        self.execute(sql).unwrap()["rows"][0][0]["value"].clone()
    }

    /// The result of a batch of statements without conditions, or with them.
    pub(crate) fn batch(&mut self, steps: &[(&str, Value)]) -> Value {
        let step = |(sql, condition): &(&str, Value)| {
            let stmt = json!({ "sql": sql });
            json!({ "stmt": stmt, "condition": condition })
        };
        let steps: Vec<Value> = steps.iter().map(step).collect();
        let request = json!({ "type": "batch", "batch": { "steps": steps } });
        self.one(request).unwrap()["result"].clone()
    }
}
