//! The half of a translation that serves the client.

use std::path::PathBuf;

use bytes::Bytes;

use super::early_acp::EarlyClient;
use super::input::{MAX_DEPTH, parse};
use super::protocol::{ClientProtocol, Served};
use crate::jsonrpc::{self, EnvelopeError, Message};

/// Creates the state for a client with an early protocol. `cwd` is the folder of sessions for which the client names none, and
/// `version` that of this program.
pub fn early_client(cwd: PathBuf, version: &'static str) -> Box<dyn ClientProtocol> {
    Box::new(EarlyClient::new(cwd, version))
}

/// ACP: messages pass unchanged.
#[derive(Debug)]
pub(super) struct Acp;

impl ClientProtocol for Acp {
    fn client_line(&mut self, line: &[u8], served: &mut Served) {
        match parse(line) {
            Ok(message) => served.to_agent.push(message),
            Err(error) => self.invalid_line(error, served),
        }
    }

    fn agent_message(&mut self, message: Message, served: &mut Served) {
        served.to_client.push(message.line());
    }

    /// The line itself, so that the client can count and show it. A line that would be a message of ACP has a prefix.
    fn unknown_agent_line(&self, line: &[u8]) -> Option<Bytes> {
        // A client may read deeper messages than the translation.
        let is_message = matches!(
            jsonrpc::parse(line, MAX_DEPTH),
            Ok(_) | Err(EnvelopeError::Depth { .. })
        );
        let prefix: &[u8] = if is_message { b"not translated: " } else { b"" };
        Some([prefix, line, b"\n"].concat().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_line_of_the_agent_is_no_message_for_the_client() {
        let shown = |line: &str| Acp.unknown_agent_line(line.as_bytes()).unwrap();
        assert_eq!(shown("Log in first"), "Log in first\n");
        assert_eq!(shown(r#"{"type":"x"}"#), "{\"type\":\"x\"}\n");
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert_eq!(shown(answer), format!("not translated: {answer}\n"));
        let deep = answer.replace("{}", &format!("{}{}", "[".repeat(200), "]".repeat(200)));
        assert_eq!(shown(&deep), format!("not translated: {deep}\n"));
    }
}
