//! The public API: types of requests and responses, and the table of problem codes.
//!
//! The module owns the REST contract and its OpenAPI schemas. It must not know routes or how the gateway
//! performs an operation. The only HTTP status that it knows is the status of a problem code.
//!
//! Read `session`, `prompt` and `request` first, then `problem`. `schema` and `transcript_schema` contain only
//! OpenAPI schemas.

pub mod agent;
pub mod auth;
pub mod broadcast;
pub mod file;
pub mod fleet;
pub mod gateway;
mod nullable;
pub mod problem;
pub mod prompt;
pub mod request;
pub mod schema;
pub mod session;
pub mod session_input;
pub mod task;
pub mod terminal;
pub mod transcript;
pub mod transcript_schema;
pub mod webhook;

pub use agent::{
    Agent, AgentAvailability, AgentList, AgentProcess, AgentProcessList, AgentSession,
    AgentSessionList, AgentStatus, CurrentTask, InstallableAgent, InstallableAgentList,
    PoolFigures,
};
pub use auth::{AgentAuth, ApiKey, CreateTicket, SignIn, SignInTerminal, Ticket};
pub use base::types::{
    PermissionPolicy, PromptStatus, Resolution, SessionPolicy, SessionState, TurnOutcome,
};
pub use broadcast::{
    AllTargets, BroadcastDelivery, BroadcastForm, BroadcastNotReached, BroadcastReached,
    BroadcastReason, BroadcastReport, BroadcastTargetKind, BroadcastTo, BroadcastType,
    CreateBroadcast, SelectedTargets,
};
pub use file::{
    FileChange, FileChangeKind, FileChangeList, FileChangeText, FileContent, FileEntry, FileKind,
    FileList, WorkspaceFolder, WorkspaceFolderList,
};
pub use fleet::{FleetMember, FleetMemberList, FleetMemberState, MemberCall, RemovedMembers};
pub use gateway::{GatewayInfo, GatewayLimits, PerKeyLimits, PerSessionLimits, PrincipalInfo};
pub use problem::{FieldError, Problem, ProblemCode};
pub use prompt::{AttachAs, Attachment, Cancelled, CreatePrompt, Prompt, PromptList, PromptPatch};
pub use request::{
    ElicitationAction, ElicitationAnswer, PendingRequest, PendingRequests, PermissionAnswer,
    RequestAnswer, RpcCall, RpcError, RpcResult,
};
pub use session::{
    BulkResult, BulkResults, ConfigOptions, Modes, Session, SessionList, SessionSummary,
    SetConfigOption, SetMode, TitleBy,
};
pub use session_input::{AttachSession, CreateSession, McpServer, RequestedContext, SessionPatch};
pub use task::{CreateTask, Task, TaskList, TaskPriority, TaskResult, TaskStatus};
pub use terminal::{Terminal, TerminalExit, TerminalList, TerminalWindow};
pub use transcript::{
    CommandOutput, ContextLost, Role, Settled, Transcript, Turn, TurnCompaction, TurnItem,
    TurnMessage, TurnNotice, TurnOther, TurnRequest, TurnSessionMessage, TurnSubagent,
    TurnTerminal, TurnToolCall,
};
pub use webhook::{
    CreateWebhook, Webhook, WebhookDelivery, WebhookDeliveryList, WebhookDeliveryState,
    WebhookList, WebhookSecret,
};
