//! The client's capabilities from `initialize`. The agent uses only these.

use agent_client_protocol_schema::v1::ClientCapabilities;
use agent_client_protocol_schema::v2;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of its own on the wire")]
pub(super) struct ClientSupport {
    /// Boolean options.
    pub(super) booleans: bool,
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) terminals: bool,
    pub(super) forms: bool,
    pub(super) urls: bool,
    pub(super) notices: bool,
    pub(super) compaction: bool,
    pub(super) plans: bool,
    pub(super) subagents: bool,
    pub(super) terminal_sign_in: bool,
}

impl ClientSupport {
    pub(super) fn of(client: ClientCapabilities) -> Self {
        let session = client.session.unwrap_or_default();
        let elicitation = client.elicitation.unwrap_or_default();
        Self {
            booleans: session.config_options.is_some_and(|options| options.boolean.is_some()),
            read: client.fs.read_text_file,
            write: client.fs.write_text_file,
            terminals: client.terminal,
            forms: elicitation.supports_form(),
            urls: elicitation.supports_url(),
            notices: session.notices.is_some(),
            compaction: session.compaction.is_some(),
            plans: client.plan.is_some(),
            subagents: client.subagents.is_some(),
            terminal_sign_in: client.auth.terminal,
        }
    }

    /// Converts the capabilities of v2. Clients of v2 serve no files and terminals, and show every kind of update.
    pub(super) fn of_v2(client: v2::ClientCapabilities) -> Self {
        let elicitation = client.elicitation.unwrap_or_default();
        Self {
            booleans: true,
            read: false,
            write: false,
            terminals: false,
            forms: elicitation.form.is_some(),
            urls: elicitation.url.is_some(),
            notices: true,
            compaction: true,
            plans: true,
            subagents: true,
            terminal_sign_in: client.auth.is_some_and(|auth| auth.terminal.is_some()),
        }
    }

    /// Each capability and whether the client offers it, for `/about`.
    pub(super) fn list(self) -> [(&'static str, bool); 11] {
        [
            ("on-off options", self.booleans),
            ("reading files", self.read),
            ("writing files", self.write),
            ("terminals", self.terminals),
            ("forms", self.forms),
            ("links", self.urls),
            ("notices", self.notices),
            ("compaction", self.compaction),
            ("plans with names", self.plans),
            ("subagents", self.subagents),
            ("sign-in at a terminal", self.terminal_sign_in),
        ]
    }
}
