//! Sessions: one owner task each.
//!
//! It owns what a session is: its log's contents, its turn, its queue, the requests that wait for a person, and
//! which process serves it. It does not know HTTP, and it writes to an agent only what its log holds.

mod actor;
mod agent_sessions;
mod answers;
mod agent_requests;
mod attach;
mod attachment;
mod attachments;
mod bulk;
mod changes;
mod command;
mod committed;
mod context;
mod creation;
mod discarded;
mod elicitations;
mod files;
mod folders;
mod background_work;
mod upstream_delete;
mod handle;
mod idempotency;
mod inbound;
mod event_loop;
mod list;
mod metadata;
mod permissions;
mod queue;
mod quota;
mod record;
mod recovery;
mod refusal;
mod registry;
mod replacement;
mod replay;
mod requests;
mod restore;
mod client_methods;
mod sign_in;
mod subagents;
mod requirements;
mod adopt;
mod terminals;
mod turn;
mod gc;
mod client_calls;
mod encode;

pub use bulk::BulkAction;
pub use command::{Answer, PromptRequest};
pub use context::{Context, MayPrompt};
pub use folders::Workspaces;
pub use handle::{AdmittedPrompt, PromptRange, SessionHandle};
pub use idempotency::IdempotencyKey;
pub use list::ListQuery;
pub use metadata::{FILTER_KEY_BYTES, FILTER_VALUE_BYTES, MetadataFilter};
pub use refusal::Refusal;
pub use registry::{Created, SessionRegistry};
