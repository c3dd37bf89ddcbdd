//! The public API: types of requests and responses, and the table of problem codes.
//!
//! The module owns the REST contract and its OpenAPI schemas. It must not know routes or how the gateway
//! performs an operation. The only HTTP status that it knows is the status of a problem code.
//!
//! Read `session`, `prompt` and `request` first, then `problem`. `schema` and `transcript_schema` contain only
//! OpenAPI schemas.

pub mod agent;
pub mod agent_process;
pub mod agent_session;
pub mod agent_status;
pub mod auth;
pub mod broadcast;
pub mod change;
pub mod file;
pub mod fleet;
pub mod gateway;
mod nullable;
pub mod problem;
pub mod prompt;
pub mod request;
pub mod rpc;
pub mod schema;
pub mod session;
pub mod session_input;
pub mod settings;
pub mod task;
pub mod terminal;
pub mod ticket;
pub mod transcript;
pub mod transcript_schema;
pub mod webhook;
pub mod workspace;

pub use crate::types::{
    PermissionPolicy, PromptStatus, Resolution, SessionPolicy, SessionState, TurnOutcome,
};
pub use agent::{Agent, AgentList, InstallableAgent, InstallableAgentList, PoolFigures};
pub use agent_process::{AgentProcess, AgentProcessList, CurrentTask};
pub use agent_session::{AgentSession, AgentSessionList};
pub use agent_status::{AgentAvailability, AgentStatus};
pub use auth::{AgentAuth, ApiKey, SignIn, SignInTerminal};
pub use broadcast::{
    AllTargets, BroadcastDelivery, BroadcastForm, BroadcastNotReached, BroadcastReached,
    BroadcastReason, BroadcastReport, BroadcastTargetKind, BroadcastTo, BroadcastType,
    CreateBroadcast, SelectedTargets,
};
pub use change::{FileChange, FileChangeKind, FileChangeList, FileChangeText};
pub use file::{FileContent, FileEntry, FileKind, FileList};
pub use fleet::{FleetMember, FleetMemberList, FleetMemberState, MemberCall, RemovedMembers};
pub use gateway::{GatewayInfo, GatewayLimits, PerKeyLimits, PerSessionLimits, PrincipalInfo};
pub use problem::{FieldError, Problem, ProblemCode};
pub use prompt::{AttachAs, Attachment, Cancelled, CreatePrompt, Prompt, PromptList, PromptPatch};
pub use request::{
    ElicitationAction, ElicitationAnswer, PendingRequest, PendingRequests, PermissionAnswer,
    RequestAnswer,
};
pub use rpc::{RpcCall, RpcError, RpcResult};
pub use session::{BulkResult, BulkResults, Session, SessionList, SessionSummary, TitleBy};
pub use session_input::{AttachSession, CreateSession, McpServer, RequestedContext, SessionPatch};
pub use settings::{ConfigOptions, Modes, SetConfigOption, SetMode};
pub use task::{CreateTask, Task, TaskList, TaskPriority, TaskResult, TaskStatus};
pub use terminal::{Terminal, TerminalExit, TerminalList, TerminalWindow};
pub use ticket::{CreateTicket, Ticket};
pub use transcript::{
    CommandOutput, ContextLost, Role, Settled, Transcript, Turn, TurnCompaction, TurnItem,
    TurnMessage, TurnNotice, TurnOther, TurnRequest, TurnSessionMessage, TurnSubagent,
    TurnTerminal, TurnToolCall,
};
pub use webhook::{
    CreateWebhook, Webhook, WebhookDelivery, WebhookDeliveryList, WebhookDeliveryState,
    WebhookList, WebhookSecret,
};
pub use workspace::{WorkspaceFolder, WorkspaceFolderList};
