//! A client as others would write it: JSON over HTTP, and nothing known about the server's inside.

use std::time::Duration;

use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, Body};

/// Longer than any request takes; a server that hangs fails the test instead of stopping it.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the server said.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<String>,
    pub(crate) body: Value,
}

impl Answer {
    /// The word for programs in an error.
    pub(crate) fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }
}

/// A client with connections of its own, which it keeps open.
pub(crate) struct Client {
    agent: Agent,
    base: String,
}

impl Client {
    pub(crate) fn new(base: &str) -> Client {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            .build();
        Client { agent: config.into(), base: base.to_owned() }
    }

    pub(crate) fn get(&self, path: &str) -> Result<Answer, ureq::Error> {
        answer(self.agent.get(format!("{}{path}", self.base)).call()?)
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Result<Answer, ureq::Error> {
        let request = self.agent.post(format!("{}{path}", self.base));
        answer(request.header("content-type", "application/json").send(body)?)
    }
}

fn answer(mut response: Response<Body>) -> Result<Answer, ureq::Error> {
    let retry_after = response.headers().get("retry-after");
    let retry_after = retry_after.map(|it| it.to_str().unwrap().to_owned());
    let status = response.status().as_u16();
    let text = response.body_mut().read_to_string()?;
    let body = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{status} with a body that is no JSON, {error}: {text:?}"));
    Ok(Answer { status, retry_after, body })
}
