//! The record of a new session, and the checks of the request for it.

use std::path::Path;

use crate::session::context::Context;
use crate::session::error::{CreateError, InputError};
use crate::session::folders::{Folder, Folders, OUTSIDE_REMOTE_FOLDERS};
use crate::session::record::SessionRecord;
use crate::session::validation::{check_metadata, check_supported, check_title, parse_servers};
use agents::agent::client_input_policy;
use agents::agent::{AgentSpec, RemoteFolders};
use base::types::{GrantedFolders, Principal, SessionId, ToolProvider};
use events::api::{CreateSession, McpServer, OnTimeout, SessionPolicy, SessionState};
use wire::acp::{self, ClientCapabilities};

const MAX_LIST_LEN: usize = 64;
const PATH_BYTES: usize = 4096;

/// Checks the request and builds the record of its session, and returns the MCP servers that the client brings. Creates the
/// session's folder if the request names none.
pub(super) async fn record(
    context: &Context,
    by: &Principal,
    id: SessionId,
    request: CreateSession,
    spec: &AgentSpec,
) -> Result<(SessionRecord, Vec<acp::McpServer>), CreateError> {
    check_request(&request, spec)?;
    let policy = request.policy.clone().unwrap_or_default();
    let mcp_servers = mcp_servers(spec, &request.mcp_servers)?;
    let brought = parse_servers(by, &request.mcp_servers)?;
    // If the capabilities are not known yet, the check happens when a process is leased.
    if let Some(known) = context.initialized(&spec.name, &by.user) {
        let directories = &request.additional_directories;
        let capabilities = &known.capabilities;
        check_supported(spec, &mcp_servers, &brought, directories, capabilities)?;
    }
    let remote = spec.endpoint.remote_folders();
    let (folder, additional_directories) = match remote {
        Some(remote) => remote_folders(remote, &request)?,
        None => folders(context, by, id, &request, spec, &policy).await?,
    };
    let used = std::iter::once(&*folder.path).chain(additional_directories.iter().map(Path::new));
    let granted_folders = if remote.is_some() {
        GrantedFolders::default()
    } else {
        by.folders.around(used)
    };
    let now = context.ids.now();
    let record = SessionRecord {
        session_id: id,
        owner: by.user.clone(),
        agent: request.agent,
        title: request.title,
        metadata: request.metadata.unwrap_or_default(),
        cwd: folder.path.to_string_lossy().into_owned(),
        own_folder: folder.created,
        remote_folders: remote.is_some(),
        shared_folder: false,
        folder_of: None,
        additional_directories,
        granted_folders,
        mcp_servers,
        meta: request
            .meta
            .as_deref()
            .and_then(|meta| acp::split_meta(meta).0)
            .map(acp::to_one_line),
        policy,
        state: SessionState::Idle,
        attached: false,
        isolation: None,
        agent_session_id: request.agent_session_id,
        created_at: now,
        updated_at: now,
        last_activity_at: now,
        last_outcome: None,
        last_prompt: 0,
        last_request: 0,
        open_requests: Vec::new(),
        last_terminal: 0,
        open_terminals: Vec::new(),
        prompt_id: None,
        queued: Vec::new(),
        prompt_capabilities: None,
        models: false,
        unfinished: false,
        inherits_history: false,
        called: false,
        channel: None,
        task: None,
        imported_from: None,
        load_not_before: None,
        restore_failures: 0,
        discards_context: false,
        seq: 0,
    };
    Ok((record, brought))
}

/// The folders of a session on this host. A session that names none gets the folder of an idle process, or a new one.
async fn folders(
    context: &Context,
    by: &Principal,
    id: SessionId,
    request: &CreateSession,
    spec: &AgentSpec,
    policy: &SessionPolicy,
) -> Result<(Folder, Vec<String>), CreateError> {
    let cwd = request.cwd.clone();
    let directories = request.additional_directories.clone();
    let idle_folder = if cwd.is_none() && directories.is_empty() {
        let (files, terminals) = spec.settings.tool_providers(policy);
        let offer = ClientCapabilities::new(files, terminals);
        context.pool.claim_folder(spec, by, offer, &id.to_string())
    } else {
        None
    };
    let allowed = context.folders_of(by);
    let home = spec.home_of(&by.user.tenant());
    let folders = context.shutdown.spawn_blocking(move || {
        let directories = resolve_all(&allowed, &directories)?;
        let folder = match idle_folder {
            Some(idle) => Folder {
                path: idle.rename(&id.to_string())?,
                created: true,
            },
            None => allowed.session_folder(id, cwd.as_deref())?,
        };
        if folder.created {
            // The start of the agent fails for the same reason, and reports it.
            let _ = allowed.workspaces.own_directory(&folder.path, &home);
        }
        Ok((folder, directories))
    });
    folders.await?
}

/// Checks the folders that a request names. Creates none.
pub(super) async fn check_folders(
    context: &Context,
    by: &Principal,
    request: &CreateSession,
    spec: &AgentSpec,
) -> Result<(), CreateError> {
    let cwd = request.cwd.clone();
    let directories = request.additional_directories.clone();
    if cwd.is_none() && directories.is_empty() {
        return Ok(());
    }
    if let Some(remote) = spec.endpoint.remote_folders() {
        remote_folders(remote, request)?;
        return Ok(());
    }
    let allowed = context.folders_of(by);
    let checked = context.shutdown.spawn_blocking(move || {
        resolve_all(&allowed, &directories)?;
        if let Some(cwd) = &cwd {
            allowed.resolve("/cwd", cwd)?;
        }
        Ok(())
    });
    checked.await?
}

fn resolve_all(allowed: &Folders, directories: &[String]) -> Result<Vec<String>, InputError> {
    let mut resolved = Vec::new();
    for (at, path) in directories.iter().enumerate() {
        let path = allowed.resolve(&format!("/additionalDirectories/{at}"), path)?;
        resolved.push(path.to_string_lossy().into_owned());
    }
    Ok(resolved)
}

/// The folders of a session on another host, which are only compared with those of the entry or the member.
fn remote_folders(
    remote: &RemoteFolders,
    request: &CreateSession,
) -> Result<(Folder, Vec<String>), InputError> {
    let allowed = |requested: Option<&str>| {
        remote
            .folder(requested)
            .ok_or_else(|| InputError::Forbidden(OUTSIDE_REMOTE_FOLDERS.to_owned()))
    };
    let folder = Folder {
        path: allowed(request.cwd.as_deref())?.into(),
        created: false,
    };
    let directories = request.additional_directories.iter();
    let directories = directories.map(|directory| allowed(Some(directory)));
    Ok((folder, directories.collect::<Result<_, _>>()?))
}

/// Checks the members of a request that need neither a process nor a file.
pub(super) fn check_request(request: &CreateSession, spec: &AgentSpec) -> Result<(), InputError> {
    check_title(request.title.as_deref())?;
    if let Some(metadata) = &request.metadata {
        check_metadata(metadata)?;
    }
    if let Some(policy) = &request.policy {
        check_policy(policy, spec)?;
    }
    let directories = &request.additional_directories;
    let is_long = |path: &String| path.len() > PATH_BYTES;
    for (pointer, is_long) in [
        ("/cwd", request.cwd.as_ref().is_some_and(is_long)),
        ("/additionalDirectories", directories.iter().any(is_long)),
    ] {
        if is_long {
            return Err(InputError::invalid(pointer, "a path of at most 4096 bytes"));
        }
    }
    for (pointer, count) in [
        ("/additionalDirectories", directories.len()),
        ("/mcpServers", request.mcp_servers.len()),
    ] {
        if count > MAX_LIST_LEN {
            return Err(InputError::invalid(pointer, "at most 64"));
        }
    }
    if let Some(meta) = &request.meta {
        client_input_policy::check_meta(&spec.settings, meta)
            .map_err(|gated| InputError::from_policy(&gated, ""))?;
    }
    Ok(())
}

/// The names of the configured servers that a request uses.
fn mcp_servers(spec: &AgentSpec, servers: &[McpServer]) -> Result<Vec<String>, InputError> {
    let mut names = Vec::new();
    for (at, server) in servers.iter().enumerate() {
        if let McpServer::Name(name) = server {
            if !spec.mcp.contains_key(name) {
                let detail = "no MCP server of that name is configured";
                return Err(InputError::invalid(format!("/mcpServers/{at}"), detail));
            }
            names.push(name.clone());
        }
    }
    Ok(names)
}

/// A client can only narrow the agent's policy.
fn check_policy(policy: &SessionPolicy, spec: &AgentSpec) -> Result<(), InputError> {
    let entry = &spec.settings;
    let permissions = policy.permissions.clone().unwrap_or_default();
    let wider = |requested: Option<ToolProvider>, permitted| {
        requested.is_some_and(|requested| requested > permitted)
    };
    let waits = permissions.on_timeout == Some(OnTimeout::Wait);
    let listed = |kind: &String| entry.permissions.allow.contains(kind);
    let narrow = "a session can only narrow the setting of the agent";
    let rules = [
        (!wider(policy.files, entry.files), "/policy/files", narrow),
        (
            !wider(policy.terminals, entry.terminals),
            "/policy/terminals",
            narrow,
        ),
        (
            !waits || entry.permissions.on_timeout == OnTimeout::Wait,
            "/policy/permissions/onTimeout",
            "the agent's entry rejects unanswered requests",
        ),
        (
            permissions.allow.iter().flatten().all(listed),
            "/policy/permissions/allow",
            "the agent's entry does not allow all of these",
        ),
    ];
    let violated = rules.into_iter().find(|(holds, ..)| !holds);
    violated.map_or(Ok(()), |(_, pointer, detail)| {
        Err(InputError::invalid(pointer, detail))
    })
}
