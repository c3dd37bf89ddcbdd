//! Members of the fleet.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use base::types::{AgentName, Timestamp};

/// The state of the connection of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FleetMemberState {
    Connected,
    /// The connection was lost, and the processes of the member wait for its return.
    Reconnecting,
    /// The member did not return in time. Its processes are lost.
    Disconnected,
}

/// A member of the fleet. The member itself chooses its name, its capacity, its version and its metadata.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetMember {
    /// The name of the member and of its agent.
    pub name: AgentName,
    pub state: FleetMemberState,
    /// The time at which the state began. It is the start of the connection of a connected member.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// The time at which the member last sent a message. Null if it has not connected since the start of the gateway.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    pub last_heartbeat_at: Option<Timestamp>,
    /// The latest round-trip time in milliseconds. Null until it is measured.
    #[schema(required)]
    pub latency_ms: Option<u64>,
    /// The number of processes that run at the member for this gateway.
    pub processes: usize,
    /// The number of processes that the member runs at the same time.
    pub capacity: usize,
    /// True if the member gets no new processes.
    pub draining: bool,
    /// The version of the program that connects.
    pub version: String,
    /// The folders of the member in which sessions may work. The first one is the default `cwd`.
    pub roots: Vec<String>,
    pub metadata: BTreeMap<String, String>,
    /// The user to whom the name of the member belongs.
    pub key: String,
}

/// The members of the fleet.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetMemberList {
    pub members: Vec<FleetMember>,
    /// The `cursor` of the next page; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// The members that an operator has removed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemovedMembers {
    /// The names of the members.
    pub members: Vec<AgentName>,
}

/// A call of a method of a member.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemberCall {
    #[schema(min_length = 1, max_length = 256)]
    pub method: String,
    /// The default is an empty object.
    #[serde(default)]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub params: Option<Box<RawValue>>,
    /// The time for the result, in seconds. After it, the call fails with 504. The default is 30.
    #[serde(default = "default_timeout")]
    #[schema(minimum = 1, maximum = 600, default = 30)]
    pub timeout_seconds: u64,
}

const fn default_timeout() -> u64 {
    30
}
