//! The events of the audit log: their types, actors and schemas.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use super::event_ref::{EventRef, after_id};
use super::table::{TYPES, event_schema, schema_name};
use crate::api::schema::union;
use crate::api::{InstallationSource, Resolution};
use base::types::{
    Access, AgentName, Author, EventId, Grantee, Isolation, Mechanism, PromptId, RequestId, Scopes,
    SessionId, Timestamp,
};

/// The party that caused an event.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditActor {
    pub kind: ActorKind,
    /// The public id of the key of a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key_id: Option<String>,
    /// The name of the user, or of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub name: Option<String>,
    /// The address of the client. An IPv6 address of a client without a key is that of its /64 network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    pub address: Option<IpAddr>,
    /// The `X-Request-Id` of the HTTP request. A WebSocket has that of the request that opened it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub http_request_id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// A request with a valid key or ticket.
    Key,
    /// A client without a valid key.
    Client,
    /// A command of a person with access to the data folder.
    CommandLine,
    /// A rule of the configuration or of the session's policy.
    Policy,
    /// The end of the time in which a person could answer.
    Timeout,
    Agent,
    Gateway,
}

impl From<ActorKind> for AuditActor {
    fn from(kind: ActorKind) -> Self {
        Self {
            kind,
            key_id: None,
            name: None,
            address: None,
            http_request_id: None,
        }
    }
}

impl From<&Author> for AuditActor {
    fn from(author: &Author) -> Self {
        Self {
            kind: ActorKind::Key,
            key_id: Some(author.key.to_string()),
            name: Some(author.name.to_string()),
            address: Some(author.address),
            http_request_id: author.http_request_id.as_deref().map(str::to_owned),
        }
    }
}

impl AuditActor {
    pub fn agent(name: &AgentName) -> Self {
        Self {
            name: Some(name.to_string()),
            ..ActorKind::Agent.into()
        }
    }

    /// A client without a valid key. `None` stands for many addresses.
    pub fn client(address: Option<IpAddr>) -> Self {
        Self {
            address,
            ..ActorKind::Client.into()
        }
    }
}

/// A key without its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditedKey {
    /// The public id of the key.
    pub id: String,
    pub name: String,
    /// The user of the key, as `TENANT/NAME`.
    pub user: String,
    /// `link`, `local` or `named`.
    pub kind: String,
    #[schema(value_type = Vec<base::types::Scope>)]
    pub scopes: Scopes,
}

/// The result of a sign-in to an agent, or of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttemptOutcome {
    Succeeded,
    /// For a sign-in: the agent rejected it, or its command failed.
    Failed,
    /// The gateway stopped. For a sign-in also: the client disconnected, or the time limit expired.
    Aborted,
}

/// The end of a tool call that a permission allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolCallOutcome {
    Completed,
    Failed,
    /// The turn or the agent process ended before the agent reported an end of the call.
    Unknown,
}

/// The form in which a session was exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExportForm {
    /// The transcript as JSON.
    Json,
    /// The transcript as Markdown.
    Markdown,
    /// The file of `acp-gateway export`.
    File,
}

/// JSON whose bytes must not change, because a hash covers them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ExactJson(pub Box<RawValue>);

impl PartialEq for ExactJson {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Eq for ExactJson {}

/// Declares the events: their structs, the enum of all of them, and the table for the documentation.
macro_rules! audit_events {
    ($($(#[$doc:meta])* $name:ident = $text:literal {
        $($(#[$attribute:meta])* $field:ident: $type:ty,)*
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
            #[serde(rename_all = "camelCase")]
            pub struct $name {
                $($(#[$attribute])* pub $field: $type,)*
            }
        )*

        /// An event of the audit log.
        #[derive(Debug, Clone, PartialEq, Eq, derive_more::From, Serialize)]
        #[serde(tag = "type")]
        pub enum AuditEvent {
            $(#[serde(rename = $text)] $name($name),)*
        }

        impl AuditEvent {
            /// The event type.
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => $text,)*
                }
            }

            /// Reads the members of the type from an object that contains others too.
            fn decode(kind: &str, object: &[u8]) -> serde_json::Result<Self> {
                match kind {
                    $($text => serde_json::from_slice(object).map(Self::$name),)*
                    _ => Err(serde::de::Error::custom("unknown type of event")),
                }
            }

            /// The members of the type, as a JSON object.
            fn members(&self) -> Vec<u8> {
                let members = match self {
                    $(Self::$name(event) => serde_json::to_vec(event),)*
                };
                members.expect("events have string keys and no failing serializer")
            }
        }

        /// The name of the Rust type and the event type. Used for the documentation.
        pub const AUDIT_TYPES: &[(&str, &str)] = &[$((stringify!($name), $text)),*];

        /// The schemas of the members, in the order of [`AUDIT_TYPES`].
        fn schemas() -> Vec<RefOr<Schema>> {
            vec![$(<$name as PartialSchema>::schema()),*]
        }

        fn referenced_schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
            $(<$name as ToSchema>::schemas(schemas);)*
        }
    };
}

audit_events! {
    /// A key was created: by a command or its user, for the link of a start, or for an `attach` process.
    KeyCreated = "key.created" {
        key: AuditedKey,
    }
    /// The scopes of a key changed, or the limits of its user. `key` has the new scopes.
    KeyUpdated = "key.updated" {
        key: AuditedKey,
        #[schema(value_type = Vec<base::types::Scope>)]
        previous_scopes: Scopes,
        /// Whether limits of the user changed.
        limits_changed: bool,
    }
    /// A key was revoked: by a command or its user, at the end of an `attach` process, or because there were too many link keys or local
    /// keys.
    KeyRevoked = "key.revoked" {
        key: AuditedKey,
    }
    /// A program with the scope `actAs` acted for a user that did not exist.
    UserCreated = "user.created" {
        /// As `TENANT/NAME`.
        user: String,
    }
    /// A command changed a user.
    UserUpdated = "user.updated" {
        user: String,
        role: Option<String>,
        groups: Vec<String>,
        is_deactivated: bool,
    }
    /// The owner of the data folder granted a folder to the key of an `attach` process.
    FolderGranted = "folder.granted" {
        key: AuditedKey,
        /// The real path of the folder.
        folder: String,
    }
    /// A key was deleted: its time ended, or a link key or local key was not used for `auth.link_key_idle_timeout`.
    KeyExpired = "key.expired" {
        key: AuditedKey,
    }
    /// A user replaced a key, or a reload of the configuration that of the operator. `null`: there was or is none.
    KeyRotated = "key.rotated" {
        key_id: Option<String>,
        previous_key_id: Option<String>,
    }
    /// The gateway printed the link with this key.
    LinkPrinted = "link.printed" {
        key_id: String,
    }
    /// A client used a key from a network from which nobody has used it before, or not recently.
    KeyUsedFromNewNetwork = "key.used_from_new_network" {
        count: u64,
    }
    /// Tickets were created with a key.
    TicketCreated = "ticket.created" {
        /// The number of tickets since the last event with this actor.
        count: u64,
    }
    /// Requests were rejected: the client has no valid key, or no right, or a wrong `Host` or `Origin`.
    RequestRejected = "request.rejected" {
        reason: RejectReason,
        /// The number of requests since the last event with this actor and reason.
        count: u64,
        first_time: Timestamp,
        last_time: Timestamp,
    }
    /// A sign-in to an agent began.
    SignInStarted = "sign_in.started" {
        agent: AgentName,
        /// The sign-in method of the agent. Absent for the terminal, which has a method since its offer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        method_id: Option<String>,
    }
    /// A sign-in to an agent ended.
    SignInEnded = "sign_in.ended" {
        agent: AgentName,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        method_id: Option<String>,
        outcome: AttemptOutcome,
    }
    /// The gateway signed out of an agent.
    SignedOut = "sign_in.signed_out" {
        agent: AgentName,
    }
    /// The gateway began to add an agent to its configuration.
    InstallationStarted = "installation.started" {
        agent: AgentName,
        #[serde(rename = "from")]
        source: InstallationSource,
        /// The version in the registry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        version: Option<String>,
    }
    /// It ended. After `succeeded`, the configuration file has an entry for the agent.
    InstallationEnded = "installation.ended" {
        agent: AgentName,
        outcome: AttemptOutcome,
    }
    /// A webhook was created, which sends events to another host.
    WebhookCreated = "webhook.created" {
        webhook_id: String,
        url: String,
    }
    /// A webhook was deleted.
    WebhookDeleted = "webhook.deleted" {
        webhook_id: String,
    }
    /// A session was shared with users, or the access that a grant gives was changed.
    GrantSet = "grant.set" {
        session_id: SessionId,
        /// `user:NAME`, `group:NAME` or `tenant`.
        #[schema(value_type = String)]
        grantee: Grantee,
        access: Access,
    }
    /// A grant of a session was taken back.
    GrantRemoved = "grant.removed" {
        session_id: SessionId,
        #[schema(value_type = String)]
        grantee: Grantee,
    }
    /// A session was deleted with its log: by a client, or by the gateway after `retention.max_age`.
    SessionErased = "session.erased" {
        session_id: SessionId,
        /// The user that owned the session, as `TENANT/NAME`.
        owner: String,
    }
    /// A user that does not own the session opened it. The log has one event an hour for each key, address and session.
    SessionRead = "session.read" {
        session_id: SessionId,
        /// The user that owns the session, as `TENANT/NAME`.
        owner: String,
    }
    /// A transcript was downloaded, or a command exported the session. For transcripts, the log has one event an hour for
    /// each key, address, session and form.
    SessionExported = "session.exported" {
        session_id: SessionId,
        form: ExportForm,
    }
    /// A client sent a broadcast.
    BroadcastSent = "broadcast.sent" {
        broadcast_id: String,
        /// The type of the request, for example `announcement`.
        broadcast_type: String,
        /// `notification` or `prompt`.
        form: String,
        /// The number of targets that got the message.
        reached: u64,
        not_reached: u64,
    }
    /// A permission request of an agent was resolved.
    PermissionDecided = "permission.decided" {
        session_id: SessionId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        prompt_id: Option<PromptId>,
        request_id: RequestId,
        agent: AgentName,
        resolution: Resolution,
        /// The kind of the selected option: `allow_once`, `allow_always`, `reject_once`, `reject_always`, or `other`.
        /// Absent if none was selected.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        option_kind: Option<String>,
        /// The ACP kind of the tool, or `other`. Absent if the agent sent none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        tool_kind: Option<String>,
        /// The id of the tool call, as in the events of the session. An id that is longer than 128 bytes or has other
        /// characters than visible ASCII is `sha256:` and its SHA-256 in hex.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        tool_call_id: Option<String>,
    }
    /// A tool call ended that a permission allowed, or its turn or process did. The log has one event for each such decision.
    PermissionToolCallEnded = "permission.tool_call_ended" {
        session_id: SessionId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        prompt_id: Option<PromptId>,
        /// The permission request.
        request_id: RequestId,
        /// As in `permission.decided`.
        tool_call_id: String,
        outcome: ToolCallOutcome,
    }
    /// The gateway refused requests of an agent by policy.
    AgentRequestRefused = "agent.request_refused" {
        session_id: SessionId,
        /// The ACP method.
        method: String,
        reason: RefuseReason,
        /// The number of requests since the last event with this session, method and reason.
        count: u64,
        first_time: Timestamp,
        last_time: Timestamp,
    }
    /// An agent process started under this isolation.
    IsolationApplied = "isolation.applied" {
        agent: AgentName,
        /// The level that the configuration requests.
        level: Isolation,
        /// The means that applies the level.
        mechanism: Mechanism,
        /// The process id of the agent on the host.
        process_id: u32,
        /// The user id of the agent on the host. `null`: that of the gateway.
        user_id: Option<u32>,
    }
    /// The state of a member of the fleet changed. For a user, the log has at most 60 of these events a minute.
    FleetMemberChanged = "fleet.member_changed" {
        member: AgentName,
        state: AuditedMemberState,
        /// The user to whom the name of the member belongs.
        key: String,
        /// The number of failed attempts since the last connection, which the member reports in `connected`.
        attempt: u32,
        /// The cause of the state. For `connected`, it is the cause of the last failed attempt, which the member reports.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        error: Option<String>,
    }
    /// A command imported a session.
    SessionImported = "session.imported" {
        session_id: SessionId,
        /// The id of the session at the previous gateway.
        imported_from: SessionId,
        /// The number of `audit.imported` events that follow.
        audit_events: u64,
        /// The SHA-256 of the `event` members of those events, in their order and each with a line feed. `audit export` of the
        /// previous gateway prints the same lines.
        audit_hash: String,
    }
    /// An event of the audit log of a previous gateway about a session that was imported. This log did not record it.
    AuditEventImported = "audit.imported" {
        session_id: SessionId,
        /// The event. Its `id`, `seq`, `previous` and `sessionId` are those of the previous gateway.
        #[schema(value_type = Object)]
        event: ExactJson,
    }
    /// Retention deletes the events up to `throughSeq`.
    AuditPruned = "audit.pruned" {
        through_seq: u64,
    }
}

/// A state of a member of the fleet that began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditedMemberState {
    Connected,
    /// The connection was lost, and the processes of the member wait for its return.
    Reconnecting,
    /// The member did not return in time, or was removed. Its processes are lost.
    Disconnected,
    /// The gateway rejected the connection.
    Failed,
}

/// The reason why a request was rejected.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema, strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum RejectReason {
    MisdirectedRequest,
    OriginForbidden,
    MissingKey,
    InvalidKey,
    InvalidTicket,
    TooManyInvalidKeys,
    /// The key has no right: a scope is missing, or a path is outside of the permitted folders.
    Forbidden,
}

/// The reason why a request of an agent was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RefuseReason {
    /// `files` or `terminals` is `off` for the agent or the session.
    Off,
    /// The path is outside of the session's folders.
    OutsideFolders,
}

/// An actor and an event, before the audit log assigns the number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    pub time: Timestamp,
    pub actor: AuditActor,
    #[serde(flatten)]
    pub event: AuditEvent,
}

impl AuditEntry {
    /// Reads a stored entry. A derived implementation would parse the members into values first, and lose their exact bytes.
    pub fn decode(stored: &[u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Head<'a> {
            time: Timestamp,
            actor: AuditActor,
            #[serde(borrow, rename = "type")]
            kind: Cow<'a, str>,
        }
        let head: Head<'_> = serde_json::from_slice(stored)?;
        Ok(Self {
            time: head.time,
            actor: head.actor,
            event: AuditEvent::decode(&head.kind, stored)?,
        })
    }

    /// The members of the event after its time. `previous` is the hash of the previous event in hex.
    pub fn members(&self, previous: &str) -> Vec<u8> {
        let mut members = b"\"actor\":".to_vec();
        serde_json::to_writer(&mut members, &self.actor).expect("an actor serializes to JSON");
        let own = self.event.members();
        for piece in [
            b",",
            &own[1..own.len() - 1],
            b",\"previous\":\"",
            previous.as_bytes(),
            b"\"",
        ] {
            members.extend_from_slice(piece);
        }
        members
    }
}

/// The members of an event of the audit log that link it to the other events and to a session.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditLink<'a> {
    pub seq: u64,
    pub time: Timestamp,
    /// The hash of the previous event in hex.
    #[serde(borrow)]
    pub previous: Cow<'a, str>,
    /// The last event that retention deleted, in `audit.pruned`.
    pub through_seq: Option<u64>,
    /// The session that the event is about.
    pub session_id: Option<SessionId>,
    /// The bytes that the hash of the event covers.
    #[serde(skip)]
    pub hashed: &'a [u8],
}

impl<'a> AuditLink<'a> {
    /// `None` if the event is damaged.
    pub fn of(event: &EventRef<'a>) -> Option<Self> {
        Self::parse(event.raw_json())
    }

    /// The same for the JSON text of an event.
    pub fn parse(json: &'a [u8]) -> Option<Self> {
        let link: Self = serde_json::from_slice(json).ok()?;
        let hashed = after_id(json);
        Some(Self { hashed, ..link })
    }
}

/// The first members of every event of the audit log, and the last one.
#[derive(Debug, ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the schema is used")]
struct AuditHead {
    /// The cursor of the event: `<epoch>-<seq>`.
    id: EventId,
    /// The number of the event in the audit log. It starts at 1 and has no gaps.
    #[schema(minimum = 1)]
    seq: u64,
    /// The event type, such as `key.created`.
    #[serde(rename = "type")]
    kind: String,
    time: Timestamp,
    actor: AuditActor,
    /// The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it.
    previous: String,
}

/// A page of the audit log.
#[derive(Debug, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditPage {
    #[schema(value_type = Vec<AuditLogEvent>)]
    pub events: Vec<Box<RawValue>>,
    /// The cursor for `after` on the next page.
    pub last_event_id: String,
    /// True if more events exist.
    pub more: bool,
}

/// The schema of the audit events: a union by `type`.
#[derive(Debug)]
pub struct AuditLogEvent;

impl PartialSchema for AuditLogEvent {
    fn schema() -> RefOr<Schema> {
        let control = TYPES.iter().filter(|row| !row.logged);
        let control = control.map(|row| (row.rust, row.name));
        let names: Vec<(&str, String)> = AUDIT_TYPES
            .iter()
            .copied()
            .chain(control)
            .map(|(rust, kind)| (kind, schema_name(rust)))
            .collect();
        union(
            "An event of the audit log. `type` selects the schema. Clients must ignore unknown types.",
            &names,
        )
    }
}

impl ToSchema for AuditLogEvent {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        let head = AuditHead::schema();
        for ((rust, kind), own) in AUDIT_TYPES.iter().zip(self::schemas()) {
            schemas.push((schema_name(rust), event_schema(&head, kind, true, own)));
        }
        AuditHead::schemas(schemas);
        referenced_schemas(schemas);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_survives_its_record() {
        let entry = AuditEntry {
            time: Timestamp::from_millis(1_795_299_303_123),
            actor: AuditActor {
                address: Some([127, 0, 0, 1].into()),
                ..ActorKind::Key.into()
            },
            event: PermissionDecided {
                session_id: SessionId::AUDIT,
                prompt_id: None,
                request_id: RequestId::FIRST,
                agent: "demo".parse().unwrap(),
                resolution: Resolution::Answered,
                option_kind: Some("allow_once".to_owned()),
                tool_kind: None,
                tool_call_id: Some("c".to_owned()),
            }
            .into(),
        };
        let stored = serde_json::to_vec(&entry).unwrap();
        assert_eq!(AuditEntry::decode(&stored).unwrap(), entry);
        assert_eq!(entry.event.kind(), "permission.decided");
        let members = String::from_utf8(entry.members("00ff")).unwrap();
        assert_eq!(
            members,
            r#""actor":{"kind":"key","address":"127.0.0.1"},"sessionId":"00000000-0000-0000-0000-000000000000","requestId":"r1","agent":"demo","resolution":"answered","optionKind":"allow_once","toolCallId":"c","previous":"00ff""#
        );
    }

    #[test]
    fn imported_event_keeps_its_bytes() {
        let exact = r#"{"seq":12345678901234567890123,"b":1.50,"a":"\u0041"}"#;
        let entry = AuditEntry {
            time: Timestamp::from_millis(1),
            actor: ActorKind::CommandLine.into(),
            event: AuditEventImported {
                session_id: SessionId::AUDIT,
                event: ExactJson(RawValue::from_string(exact.to_owned()).unwrap()),
            }
            .into(),
        };
        let stored = serde_json::to_vec(&entry).unwrap();
        let decoded = AuditEntry::decode(&stored).unwrap();
        assert_eq!(decoded, entry);
        let members = String::from_utf8(decoded.members("00ff")).unwrap();
        assert!(
            members.contains(&format!(",\"event\":{exact},")),
            "{members}"
        );
    }
}
