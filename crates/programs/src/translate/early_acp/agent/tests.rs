//! Conversations with agents of each variation, as tables of lines in both directions.

use serde_json::Value;
use serde_json::value::RawValue;

use super::translator::{Opening, Translator};
use crate::translate::protocol::Output;
use wire::jsonrpc::{Message, PendingTables};

mod bounds;
mod early_names;
mod variations;

/// A translator between a test and a scripted agent. The calls of the test have the ids 1, 2, ...
struct Fixture {
    translator: Translator,
    tables: PendingTables,
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

/// A message as one line: `update {...}`, `METHOD {...}`, `ask ID METHOD {...}`, `result ID {...}`, `error ID CODE TEXT`
/// and `send {...}` for a line to the agent.
fn shown(message: &Output) -> String {
    match message {
        Output::ToClient(Message::Notification { method, params })
            if &**method == "session/update" =>
        {
            format!("update {params}")
        }
        Output::ToClient(Message::Notification { method, params }) => format!("{method} {params}"),
        Output::ToClient(Message::Request { id, method, params }) => {
            format!("ask {id} {method} {params}")
        }
        Output::ToClient(Message::Response {
            id,
            outcome: Ok(result),
        }) => format!("result {id} {result}"),
        Output::ToClient(Message::Response {
            id,
            outcome: Err(error),
        }) => {
            format!("error {id} {} {}", error.code, error.message)
        }
        Output::ToAgent(line) => format!("send {}", line_of(line)),
        Output::Launch(_) => panic!("{message:?}"),
    }
}

/// The lines for the agent, without their constant member.
fn line_of(lines: &[u8]) -> String {
    let lines = std::str::from_utf8(lines).unwrap();
    assert!(lines.is_empty() || lines.ends_with('\n'));
    lines.trim_end().replace(r#""jsonrpc":"2.0","#, "")
}

impl Fixture {
    fn new() -> Self {
        let translator = Translator::new(Opening::Text, "t".to_owned());
        Self {
            translator,
            tables: PendingTables::default(),
        }
    }

    fn encode(&mut self, message: &Message) -> String {
        self.translator.encode(message);
        let out = std::mem::take(&mut self.translator.out);
        let shown = out.iter().map(|output| match output {
            Output::ToAgent(lines) => line_of(lines),
            output => shown(output),
        });
        shown.collect::<Vec<_>>().join("\n")
    }

    /// Sends a request. Returns the lines for the agent, or the reply.
    fn call(&mut self, method: &str, params: &str) -> String {
        let id = self.tables.register_call();
        self.encode(&Message::Request {
            id: raw(&id.to_string()),
            method: method.into(),
            params: raw(params),
        })
    }

    fn notify(&mut self, method: &str, params: &str) -> String {
        self.encode(&Message::Notification {
            method: method.into(),
            params: raw(params),
        })
    }

    fn prompt(&mut self, text: &str) -> String {
        self.call(
            "session/prompt",
            &format!(r#"{{"sessionId":"s","prompt":[{{"type":"text","text":"{text}"}}]}}"#),
        )
    }

    /// Translates a line of the agent. Returns its messages.
    fn receive(&mut self, line: &str) -> Vec<String> {
        self.try_receive(line).unwrap()
    }

    fn try_receive(&mut self, line: &str) -> Result<Vec<String>, String> {
        let translated = self.translator.line(line.as_bytes(), 32);
        let out = std::mem::take(&mut self.translator.out);
        translated
            .map_err(|error| error.to_string())
            .map(|()| out.iter().map(shown).collect())
    }

    /// The updates for one line of the agent.
    fn updates(&mut self, line: &str) -> Vec<Value> {
        let updates = self.receive(line);
        let update = |text: &String| -> Value {
            let params = text
                .strip_prefix("update ")
                .unwrap_or_else(|| panic!("{text}"));
            let params: Value = serde_json::from_str(params).unwrap();
            assert_eq!(params["sessionId"], "s", "{text}");
            params["update"].clone()
        };
        updates.iter().map(update).collect()
    }

    /// An agent with early names and the session `s`. The next call has the id 3.
    fn early() -> Self {
        let mut fixture = Self::new();
        fixture.call(
            "initialize",
            r#"{"protocolVersion":1,"clientCapabilities":{}}"#,
        );
        fixture.receive(
            r#"{"id":1,"result":{"protocolVersion":"1.0","serverInfo":{"name":"a","version":"1"}}}"#,
        );
        fixture.receive(r#"{"method":"initialized"}"#);
        fixture.call("session/new", r#"{"cwd":"/w","mcpServers":[]}"#);
        assert_eq!(
            fixture.receive(r#"{"id":2,"result":{"sessionId":"s"}}"#),
            [r#"result 2 {"sessionId":"s"}"#]
        );
        fixture
    }

    /// An agent with modern names and the session `s`. The next call has the id 3.
    fn modern() -> Self {
        let mut fixture = Self::new();
        fixture.call(
            "initialize",
            r#"{"protocolVersion":1,"clientCapabilities":{}}"#,
        );
        fixture.receive(r#"{"id":1,"result":{"protocolVersion":1,"agentCapabilities":{}}}"#);
        fixture.call("session/new", r#"{"cwd":"/w","mcpServers":[]}"#);
        assert_eq!(
            fixture.receive(r#"{"id":2,"result":{"sessionId":"s"}}"#),
            [r#"result 2 {"sessionId":"s"}"#]
        );
        fixture
    }
}
