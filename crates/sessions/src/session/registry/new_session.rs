//! The record of a new session, and the checks of the request for it.

use std::path::{Path, PathBuf};

use tracing::Span;

use crate::session::context::Context;
use crate::session::error::{CreateError, InputError};
use crate::session::folders::{self, Folder, OUTSIDE_REMOTE_FOLDERS};
use crate::session::record::SessionRecord;
use crate::session::validation::{check_metadata, check_supported, check_title, parse_servers};
use agents::agent::{AgentSpec, IdleFolder, RemoteFolders};
use base::types::{
    GrantedFolders, OnTimeout, Principal, ServedBy, SessionId, SessionPolicy, SessionState,
};
use events::api::{CreateSession, McpServer};
use wire::acp::{self, ClientCapabilities, client_input_policy};
use workspace::Workspaces;

const MAX_LIST_LEN: usize = 64;
const PATH_BYTES: usize = 4096;

/// Checks the request and builds the record of its session, and returns the MCP servers that the client brings. Creates the session's folder if the request names none.
pub(super) async fn record(
    context: &Context,
    by: &Principal,
    id: SessionId,
    request: CreateSession,
    spec: &AgentSpec,
) -> Result<(SessionRecord, Vec<acp::McpServer>), CreateError> {
    check_request(&request, spec)?;
    let (metadata, policy) = (
        request.metadata.unwrap_or_default(),
        request.policy.unwrap_or_default(),
    );
    let mcp_servers = mcp_servers(spec, &request.mcp_servers)?;
    let brought = parse_servers(by, &request.mcp_servers)?;
    // If the capabilities are not known yet, the check happens when a process is leased.
    if let Some(initialized) = context
        .pool
        .agent_stats(&spec.name, &by.tenant)
        .and_then(|(_, initialized)| initialized)
    {
        let directories = &request.additional_directories;
        check_supported(
            spec,
            (&mcp_servers, &brought),
            directories,
            &initialized.capabilities,
        )?;
    }
    let requested = (request.cwd, request.additional_directories);
    let remote = spec.endpoint.remote_folders();
    let (folder, additional_directories) = if let Some(remote) = remote {
        remote_folders(remote, &requested)?
    } else {
        let named = (requested.0.as_deref(), &*requested.1);
        let idle_folder = claim_idle_folder(context, by, id, named, (spec, &policy));
        let workspaces = context.workspaces.with_granted(by.folders.clone());
        folders(
            context,
            (workspaces, id, spec.home_of(&by.tenant)),
            requested,
            idle_folder,
        )
        .await?
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
        tenant: by.tenant.as_str().to_owned(),
        owner: by.id.to_string(),
        agent: request.agent,
        title: request.title,
        metadata,
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
        load_not_before: None,
        restore_failures: 0,
        discards_context: false,
        seq: 0,
    };
    Ok((record, brought))
}

/// The folder of an idle process. `None` if the session names folders.
fn claim_idle_folder(
    context: &Context,
    by: &Principal,
    id: SessionId,
    (cwd, directories): (Option<&str>, &[String]),
    (spec, policy): (&AgentSpec, &SessionPolicy),
) -> Option<IdleFolder> {
    if cwd.is_some() || !directories.is_empty() {
        return None;
    }
    let (files, terminals) = policy.served_by(&spec.settings);
    context.pool.claim_folder(
        spec,
        by,
        ClientCapabilities::new(files, terminals),
        &id.to_string(),
    )
}

async fn folders(
    context: &Context,
    (workspaces, id, home): (Workspaces, SessionId, PathBuf),
    (cwd, directories): (Option<String>, Vec<String>),
    idle_folder: Option<IdleFolder>,
) -> Result<(Folder, Vec<String>), CreateError> {
    let span = Span::current();
    let folders = context.shutdown.spawn_blocking(move || {
        let _entered = span.entered();
        let directories = resolve_all(&workspaces, &directories)?;
        let folder = match idle_folder {
            Some(idle) => Folder {
                path: idle.rename(&id.to_string())?,
                created: true,
            },
            None => folders::session_folder(&workspaces, id, cwd.as_deref())?,
        };
        if folder.created {
            // The start of the agent fails for the same reason, and reports it.
            drop(workspaces.own_directory(&folder.path, &home));
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
    let requested = (request.cwd.clone(), request.additional_directories.clone());
    if requested.0.is_none() && requested.1.is_empty() {
        return Ok(());
    }
    if let Some(remote) = spec.endpoint.remote_folders() {
        return Ok(remote_folders(remote, &requested).map(drop)?);
    }
    let workspaces = context.workspaces.with_granted(by.folders.clone());
    let checked = context.shutdown.spawn_blocking(move || {
        resolve_all(&workspaces, &requested.1)?;
        if let Some(cwd) = &requested.0 {
            folders::resolve(&workspaces, "/cwd", cwd)?;
        }
        Ok(())
    });
    checked.await?
}

fn resolve_all(workspaces: &Workspaces, directories: &[String]) -> Result<Vec<String>, InputError> {
    let resolve = |(at, path): (usize, &String)| {
        folders::resolve(workspaces, &format!("/additionalDirectories/{at}"), path)
            .map(|path| path.to_string_lossy().into_owned())
    };
    directories.iter().enumerate().map(resolve).collect()
}

/// The folders of a session on another host, which are only compared with those of the entry or the member.
fn remote_folders(
    remote: &RemoteFolders,
    (cwd, directories): &(Option<String>, Vec<String>),
) -> Result<(Folder, Vec<String>), InputError> {
    let allowed = |requested: Option<&str>| {
        remote
            .folder(requested)
            .ok_or_else(|| InputError::Forbidden(OUTSIDE_REMOTE_FOLDERS.to_owned()))
    };
    let folder = Folder {
        path: allowed(cwd.as_deref())?.into(),
        created: false,
    };
    let directories = directories.iter().map(|directory| allowed(Some(directory)));
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
    let directories = request
        .additional_directories
        .iter()
        .map(|path| ("/additionalDirectories", path));
    for (pointer, path) in request
        .cwd
        .iter()
        .map(|path| ("/cwd", path))
        .chain(directories)
    {
        if path.len() > PATH_BYTES {
            return Err(InputError::invalid(pointer, "a path of at most 4096 bytes"));
        }
    }
    for (pointer, count) in [
        (
            "/additionalDirectories",
            request.additional_directories.len(),
        ),
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

fn mcp_servers(spec: &AgentSpec, servers: &[McpServer]) -> Result<Vec<String>, InputError> {
    let server = |(at, server): (usize, &McpServer)| match server {
        McpServer::Name(name) if spec.mcp.contains_key(name) => Some(Ok(name.clone())),
        McpServer::Name(_) => {
            let detail = "no MCP server of that name is configured";
            Some(Err(InputError::invalid(
                format!("/mcpServers/{at}"),
                detail,
            )))
        }
        McpServer::Inline(_) => None,
    };
    servers.iter().enumerate().filter_map(server).collect()
}

/// A client can only narrow the agent's policy.
fn check_policy(policy: &SessionPolicy, spec: &AgentSpec) -> Result<(), InputError> {
    let (entry, permissions) = (
        &spec.settings,
        policy.permissions.clone().unwrap_or_default(),
    );
    let wider = |requested: Option<ServedBy>, permitted| {
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
