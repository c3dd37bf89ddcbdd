//! The methods of ACP v2, and the conversion of the scenes' updates.
//!
//! Reading order: [`set_up`], [`settings`], [`prompt`], [`permission`], [`updates`], [`messages`], [`display`].

mod messages;
mod permission;
mod prompt;
mod set_up;
mod settings;
mod display;
mod updates;

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::Error;
use agent_client_protocol_schema::v2::{
    AgentAuthCapabilities, AgentCapabilities, CancelTerminalRequest, CancelTerminalResponse,
    CancelToolCallRequest, CancelToolCallResponse, Implementation, InitializeRequest, InitializeResponse,
    LoginAuthRequest, LoginAuthResponse, LogoutAuthResponse, McpCapabilities, McpHttpCapabilities,
    McpStdioCapabilities, PromptAudioCapabilities, PromptCapabilities, PromptEmbeddedContextCapabilities,
    PromptImageCapabilities, SessionAdditionalDirectoriesCapabilities, SessionCapabilities,
    SessionDeleteCapabilities, SessionForkCapabilities, SessionId,
};
use serde_json::value::RawValue;

use super::agent::{Agent, parse};
use super::client_support::ClientSupport;
pub(super) use permission::question;
pub(super) use updates::update;

impl Agent {
    pub(super) async fn request_v2(&mut self, id: &RawValue, method: &str, params: &RawValue) {
        let peer = self.peer.clone();
        match method {
            "initialize" => peer.answer(id, self.initialize_v2(params)).await,
            "auth/login" => peer.answer(id, self.login(params)).await,
            "auth/logout" => peer.answer(id, self.sign_in.logout().map(|()| LogoutAuthResponse::new())).await,
            "session/new" => peer.answer(id, self.new_v2(params)).await,
            "session/resume" => peer.answer(id, self.resume_v2(params).await).await,
            "session/fork" => peer.answer(id, self.fork_v2(params)).await,
            "session/list" => peer.answer(id, self.list(params)).await,
            "session/close" => peer.answer(id, self.close(params).await).await,
            "session/delete" => peer.answer(id, self.delete(params).await).await,
            "session/set_config_option" => peer.answer(id, self.set_option_v2(params)).await,
            "session/prompt" => {
                if let Err(error) = self.prompt_v2(id, params) {
                    peer.answer::<()>(id, Err(error)).await;
                }
            }
            "tool_call/cancel" => peer.answer(id, self.cancel_call(params)).await,
            "terminal/cancel" => peer.answer(id, self.cancel_terminal(params)).await,
            other => self.method_not_found(id, other).await,
        }
    }

    fn initialize_v2(&mut self, params: &RawValue) -> Result<InitializeResponse, Error> {
        let request: InitializeRequest = parse(params)?;
        self.offer = ClientSupport::of_v2(request.capabilities);
        let prompt = PromptCapabilities::new()
            .image(PromptImageCapabilities::new())
            .audio(PromptAudioCapabilities::new())
            .embedded_context(PromptEmbeddedContextCapabilities::new());
        let servers =
            McpCapabilities::new().stdio(McpStdioCapabilities::new()).http(McpHttpCapabilities::new());
        let session = SessionCapabilities::new()
            .prompt(prompt)
            .mcp(servers)
            .additional_directories(SessionAdditionalDirectoriesCapabilities::new())
            .fork(SessionForkCapabilities::new())
            .delete(SessionDeleteCapabilities::new());
        let mut capabilities = AgentCapabilities::new().session(session);
        if self.sign_in.is_configured() {
            capabilities = capabilities.auth(AgentAuthCapabilities::new());
        }
        let info = Implementation::new("acp-gateway-demo", env!("CARGO_PKG_VERSION"));
        Ok(InitializeResponse::new(ProtocolVersion::V2, info.title("Demo agent".to_owned()))
            .capabilities(capabilities)
            .auth_methods(settings::auth_methods(self.sign_in.methods(self.offer))))
    }

    fn login(&self, params: &RawValue) -> Result<LoginAuthResponse, Error> {
        let request: LoginAuthRequest = parse(params)?;
        self.sign_in.authenticate(&request.method_id.0)?;
        Ok(LoginAuthResponse::new())
    }

    fn cancel_call(&self, params: &RawValue) -> Result<CancelToolCallResponse, Error> {
        let request: CancelToolCallRequest = parse(params)?;
        self.cancel_part(&request.session_id, &request.tool_call_id.0)?;
        Ok(CancelToolCallResponse::new())
    }

    fn cancel_terminal(&self, params: &RawValue) -> Result<CancelTerminalResponse, Error> {
        let request: CancelTerminalRequest = parse(params)?;
        self.cancel_part(&request.session_id, &request.terminal_id.0)?;
        Ok(CancelTerminalResponse::new())
    }

    fn cancel_part(&self, session: &SessionId, part: &str) -> Result<(), Error> {
        let session = self.sessions.get(&updates::session_id_v1(session))?;
        if session.cancel_part(part) {
            Ok(())
        } else {
            Err(Error::invalid_params().data("it has ended, or cannot be cancelled by itself"))
        }
    }
}
