//! `agent search|add|list|update|remove`: installs agents by their id in an ACP registry.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::attach::tls_client;
use super::output::{Failure, multi_thread_runtime, private_folder};
use super::progress::Progress;
use super::source::ConfigSource;
use super::{lock, output};
use crate::app;
use crate::config::{self, AgentEntry, Config, ConfigFile, EntryFile, Environment, Flags};
use crate::registry::{
    Added, Answer, DEFAULT_SOURCE, Entry, Index, Installed, Installer, Kind, Order, Programs,
    Record, Request, Source, Step, installed, verify,
};
use agents::agent::AgentSettings;
use base::shutdown::Shutdown;
use base::types::text::strip_controls;
use base::types::{AgentName, Ids, OWN_PROGRAM};
use children::{ChildIsolation, ChildSpec, Spawner};
use wire::acp::{ClientCapabilities, KnownAgent};

#[derive(Debug, Subcommand)]
pub(super) enum AgentCommand {
    /// List the agents of the registry whose id, name or description contains a text
    Search {
        text: Option<String>,
        #[command(flatten)]
        registry: RegistryFlags,
    },
    /// Install an agent, start it once, and write its entry into the configuration file
    Add {
        /// The id in the registry, and the version that the registry must have
        #[arg(value_name = "ID[@VERSION]")]
        agent: String,
        /// The name of the entry [default: the id]
        #[arg(long, value_name = "NAME")]
        name: Option<AgentName>,
        #[command(flatten)]
        registry: RegistryFlags,
        #[command(flatten)]
        install: InstallFlags,
    },
    /// List the installed agents
    List,
    /// Install the version of the registry in place of the installed one
    Update {
        id: String,
        #[command(flatten)]
        registry: RegistryFlags,
        #[command(flatten)]
        install: InstallFlags,
    },
    /// Delete an installed agent and its entry
    Remove { id: String },
}

#[derive(Debug, Default, Args)]
pub(super) struct RegistryFlags {
    /// The registry: an https URL, or a file [default: `registry.source`, or the registry of the ACP project]
    #[arg(long, value_name = "URL|FILE")]
    registry: Option<String>,
    /// A file with certificates in PEM that are trusted in addition to those of the system
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

#[derive(Debug, Default, Args)]
pub(super) struct InstallFlags {
    /// Install this kind of distribution [default: the first one of binary, npx, uvx]
    #[arg(long)]
    kind: Option<Kind>,
    /// The SHA-256 that the archive of a binary must have
    #[arg(long, value_name = "HEX")]
    sha256: Option<String>,
    /// Run install scripts of npm packages and build scripts of Python packages
    #[arg(long)]
    allow_scripts: bool,
}

impl InstallFlags {
    fn request(&self, name: AgentName) -> Request {
        Request {
            name,
            kind: self.kind,
            sha256: self.sha256.clone(),
            allow_scripts: self.allow_scripts,
        }
    }
}

pub(super) fn run(command: &AgentCommand, flags: &Flags, json: bool) -> Result<(), Failure> {
    let environment = Environment::from_process();
    let runtime = multi_thread_runtime()?;
    match command {
        AgentCommand::Search { text, registry } => {
            let index = runtime.block_on(load(registry, flags, &environment))?;
            output::write_result(&FoundAgents::of(&index, text.as_deref()), json)
        }
        AgentCommand::List => {
            let config = config::load_local(flags, &environment)?;
            let agents = installed(&agents_folder(&config)?)?;
            output::write_result(&InstalledAgents::of(agents), json)
        }
        AgentCommand::Remove { id } => {
            output::write_result(&remove(id, flags, &environment)?, json)
        }
        AgentCommand::Add {
            agent,
            name,
            registry,
            install,
        } => {
            let (id, version) = agent
                .split_once('@')
                .map_or((&**agent, None), |(id, version)| (id, Some(version)));
            let source = ConfigSource::new(flags, environment);
            let outcome = runtime.block_on(async {
                let (entry, installations) = prepare(id, version, &source, registry).await?;
                let name = name.clone().map_or_else(|| id.parse(), Ok)?;
                let installation = installations.add(&entry, name, install).await?;
                Ok::<_, Failure>(Outcome::Installed(installation.into()))
            })?;
            output::write_result(&outcome, json)
        }
        AgentCommand::Update {
            id,
            registry,
            install,
        } => {
            let source = ConfigSource::new(flags, environment);
            let outcome = runtime.block_on(async {
                let (entry, installations) = prepare(id, None, &source, registry).await?;
                installations.update(&entry, install).await
            })?;
            output::write_result(&outcome, json)
        }
    }
}

async fn prepare(
    id: &str,
    version: Option<&str>,
    source: &ConfigSource,
    registry: &RegistryFlags,
) -> Result<(Entry, Installations), Failure> {
    let progress = Progress::new();
    let show: Show = Rc::new(move |step| progress.show(step));
    Installations::prepare(id, version, source, registry, show, Shutdown::new()).await
}

/// Adds the agent of an order over HTTP, as `add` does. Blocks on files, so it must not run on a worker of the gateway.
pub(super) async fn add_ordered(
    order: &Order,
    source: &ConfigSource,
    show: Show,
    shutdown: Shutdown,
) -> Result<Added, Failure> {
    if let Some(found) = order.found {
        return add_found(found.known, found.command, &order.agent, source);
    }
    let id = order.agent.as_str();
    let version = order.version.as_deref();
    let registry = RegistryFlags::default();
    let prepared = Installations::prepare(id, version, source, &registry, show, shutdown);
    let (entry, installations) = prepared.await?;
    let flags = InstallFlags::default();
    let added = installations.add(&entry, order.agent.clone(), &flags);
    let added = added.await?;
    let known = if installations.config.is_personal() {
        KnownAgent::of_registry(id)
    } else {
        None
    };
    let received = known.map(|known| {
        let variables = config::variables_of_installed(known, &source.environment);
        variables.map(|(name, _)| name.to_owned()).collect()
    });
    Ok(Added {
        sign_in: added.sign_in,
        key_variables: to_strings(&added.key_variables),
        received_variables: received.unwrap_or_default(),
        inherits: known.is_some(),
        config_file: Some(added.config_file.display().to_string()),
    })
}

/// Writes the entry of an agent that is on PATH. It gets the home of the operator, as an agent that the gateway finds itself.
/// A gateway that offers the default agents finds it at the next reload: an entry would remove the others.
fn add_found(
    known: &'static KnownAgent,
    command: &str,
    name: &AgentName,
    source: &ConfigSource,
) -> Result<Added, Failure> {
    let config = source.load()?;
    let variables = config::variables_of(known, &source.environment);
    let variables: Vec<&str> = variables.map(|(name, _)| name).collect();
    let added = Added {
        sign_in: Vec::new(),
        key_variables: to_strings(&known.suggested_variables),
        received_variables: to_strings(&variables),
        inherits: config.offers_default_agents,
        config_file: None,
    };
    if config.offers_default_agents {
        return Ok(added);
    }
    let file = writable_file(source)?;
    let mut entries = EntryFile::open(&file, agents_folder(&config)?)?;
    entries.check_writable()?;
    let entry = AgentEntry {
        command: Path::new(command),
        args: &to_strings(&known.args),
        env: &BTreeMap::new(),
        from_env: &variables,
        home_user: true,
        terminal_auth: known.login.is_some(),
    };
    entries.put(name, &entry)?;
    entries.save()?;
    Ok(Added {
        config_file: Some(file.display().to_string()),
        ..added
    })
}

fn to_strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn source(
    registry: &RegistryFlags,
    flags: &Flags,
    environment: &Environment,
) -> Result<Source, Failure> {
    if let Some(source) = &registry.registry {
        return Ok(Source::parse(source));
    }
    // `add` creates a file that is named.
    let named = ConfigFile::named(flags.config.as_deref(), environment);
    let config = if named.is_none_or(|file| file.exists()) {
        config::load_local(flags, environment)?
    } else {
        Config::default()
    };
    Ok(Source::parse(
        config.registry_source.as_deref().unwrap_or(DEFAULT_SOURCE),
    ))
}

async fn load(
    registry: &RegistryFlags,
    flags: &Flags,
    environment: &Environment,
) -> Result<Index, Failure> {
    let source = source(registry, flags, environment)?;
    let client = tls_client(registry.ca_file.as_ref(), source.uses_tls(), environment)?;
    Ok(Index::parse(&source.load(&client).await?)?)
}

/// The result of `search`.
#[derive(Debug, Serialize)]
struct FoundAgents {
    agents: Vec<FoundAgent>,
}

#[derive(Debug, Serialize)]
struct FoundAgent {
    id: String,
    name: String,
    version: String,
    description: String,
    kinds: Vec<Kind>,
}

impl FoundAgents {
    fn of(index: &Index, text: Option<&str>) -> Self {
        let text = text.unwrap_or_default().to_lowercase();
        let mut agents = Vec::new();
        for entry in index.entries() {
            let texts = [&entry.id, &entry.name, &entry.description];
            if texts.iter().any(|of| of.to_lowercase().contains(&text)) {
                agents.push(FoundAgent {
                    kinds: entry.kinds(),
                    id: entry.id,
                    name: entry.name,
                    version: entry.version,
                    description: entry.description,
                });
            }
        }
        Self { agents }
    }
}

impl Display for FoundAgents {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for agent in &self.agents {
            let kinds: Vec<_> = agent.kinds.iter().map(Kind::to_string).collect();
            let kinds = kinds.join(",");
            let description = strip_controls(&agent.description);
            writeln!(
                f,
                "{:<24} {:<12} {kinds:<16} {description}",
                agent.id, agent.version
            )?;
        }
        Ok(())
    }
}

/// The result of `list`.
#[derive(Debug, Serialize)]
struct InstalledAgents {
    agents: Vec<InstalledAgent>,
}

#[derive(Debug, Serialize)]
struct InstalledAgent {
    #[serde(flatten)]
    record: Record,
    folder: PathBuf,
}

impl InstalledAgents {
    fn of(agents: Vec<(PathBuf, Record)>) -> Self {
        let agents = agents.into_iter();
        let agents = agents.map(|(folder, record)| InstalledAgent { record, folder });
        Self {
            agents: agents.collect(),
        }
    }
}

impl Display for InstalledAgents {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for InstalledAgent { record, .. } in &self.agents {
            writeln!(
                f,
                "{:<24} {:<12} {:<8} [agents.{}]  {}",
                record.id, record.version, record.kind, record.name, record.installed_at
            )?;
        }
        Ok(())
    }
}

/// The folder of all installations. The command of an entry is an absolute path.
fn agents_folder(config: &Config) -> std::io::Result<PathBuf> {
    std::path::absolute(config.data.agents())
}

/// The file into which the entries of agents are written: the one that is read, or that of the user.
fn config_file(flags: &Flags, environment: &Environment) -> Result<PathBuf, Failure> {
    if let Some(named) = ConfigFile::named(flags.config.as_deref(), environment) {
        return Ok(named);
    }
    let read = config::load_local(flags, environment)?.file.path;
    let file = read.or_else(|| environment.user_config_file());
    Ok(file.ok_or(
        "no home directory for a configuration file; name the file with --config, and the command writes the entry of the \
         agent into it",
    )?)
}

/// The result of `remove`.
#[derive(Debug, Serialize)]
struct RemovedAgents {
    removed: Vec<RemovedAgent>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RemovedAgent {
    id: String,
    version: String,
    name: AgentName,
    entry_removed: bool,
}

impl Display for RemovedAgents {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for agent in &self.removed {
            let entry = if agent.entry_removed {
                " and its entry"
            } else {
                ""
            };
            writeln!(f, "removed {} {}{entry}", agent.id, agent.version)?;
        }
        writeln!(f, "{RELOAD}")
    }
}

fn remove(id: &str, flags: &Flags, environment: &Environment) -> Result<RemovedAgents, Failure> {
    let file = config_file(flags, environment)?;
    let config = config::load_local(flags, environment)?;
    let mut entries = EntryFile::open(&file, agents_folder(&config)?.join(id))?;
    let mut found = installed(&agents_folder(&config)?)?;
    found.retain(|(_, record)| record.id == id);
    if found.is_empty() {
        return Err(format!(
            "{id} is not installed; `acp-gateway agent list` lists the installed agents"
        )
        .into());
    }
    let mut removed = Vec::new();
    for (folder, record) in found {
        let entry_removed = entries.remove(&record.name);
        entries.save()?;
        std::fs::remove_dir_all(&folder)?;
        // It fails while other versions are installed.
        let _ = folder.parent().map(std::fs::remove_dir);
        removed.push(RemovedAgent {
            id: record.id,
            version: record.version,
            name: record.name,
            entry_removed,
        });
    }
    Ok(RemovedAgents { removed })
}

const RELOAD: &str = "a running gateway reads its configuration again on SIGHUP";

/// The result of `add` and `update`.
#[derive(Debug, Serialize)]
#[serde(tag = "result", rename_all = "camelCase")]
enum Outcome {
    Installed(Box<Installation>),
    /// The installed version is that of the registry.
    Unchanged {
        id: String,
        version: String,
    },
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Installation {
    #[serde(flatten)]
    record: Record,
    folder: PathBuf,
    /// The name and the version that the agent reports.
    agent: Option<String>,
    sign_in: Vec<String>,
    /// The variables of which one can contain the key of the agent.
    key_variables: Vec<&'static str>,
    config_file: PathBuf,
    /// The version that stays for running processes.
    previous_version: Option<String>,
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Installed(installation) => installation.fmt(f),
            Self::Unchanged { id, version } => {
                writeln!(f, "{id} {version} is the version of the registry")
            }
        }
    }
}

impl Display for Installation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let record = &self.record;
        writeln!(
            f,
            "installed {} {} ({}) in {}",
            record.id,
            record.version,
            record.kind,
            self.folder.display()
        )?;
        if let Some(sha256) = &record.sha256 {
            writeln!(f, "sha256 {sha256}")?;
        }
        let agent = self.agent.as_deref().unwrap_or("an agent without a name");
        writeln!(f, "it answers as {}", strip_controls(agent))?;
        if !self.sign_in.is_empty() {
            writeln!(f, "sign-in: {}", strip_controls(&self.sign_in.join(", ")))?;
        }
        if !self.key_variables.is_empty() {
            let variables = self.key_variables.join(" or ");
            writeln!(f, "key: set {variables} in `env` of the entry")?;
        }
        writeln!(
            f,
            "wrote [agents.{}] to {}; {RELOAD}",
            record.name,
            self.config_file.display()
        )?;
        if let Some(version) = &self.previous_version {
            writeln!(
                f,
                "version {version} stays until the next update, for running processes"
            )?;
        }
        Ok(())
    }
}

/// The configuration file for new entries, which is created if it does not exist.
fn writable_file(source: &ConfigSource) -> Result<PathBuf, Failure> {
    let file = config_file(&source.flags, &source.environment)?;
    if !file.exists() {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        EntryFile::open(&file, PathBuf::new())?.save()?;
    }
    Ok(file)
}

/// Shows the steps of an installation.
type Show = Rc<dyn Fn(Step<'_>)>;

struct Installations {
    file: PathBuf,
    config: Config,
    installer: Installer,
    show: Show,
}

impl Installations {
    /// Finds the agent in the registry. Only then the configuration file is created.
    async fn prepare(
        id: &str,
        version: Option<&str>,
        config: &ConfigSource,
        registry: &RegistryFlags,
        show: Show,
        shutdown: Shutdown,
    ) -> Result<(Entry, Self), Failure> {
        let flags = &config.flags;
        let environment = &config.environment;
        show(Step::Registry);
        let index = load(registry, flags, environment).await?;
        let entry = index.find(id, version)?;
        let file = writable_file(config)?;
        let config = config.load()?;
        let home = environment.home();
        let programs = Programs {
            spawner: Spawner::new(OWN_PROGRAM.into(), None, shutdown.clone(), Arc::default()),
            env: environment.of_package_managers(),
            path: environment.search_path().to_owned(),
            home: home.unwrap_or_else(|| config.data.path().to_owned()),
        };
        let shown = Rc::clone(&show);
        let installer = Installer {
            agents: agents_folder(&config)?,
            source: source(registry, flags, environment)?,
            // The archives of a registry on this machine can have URLs.
            client: tls_client(registry.ca_file.as_ref(), true, environment)?,
            programs,
            ids: Ids::system(),
            shutdown,
            progress: Box::new(move |step| shown(step)),
        };
        let installations = Self {
            file,
            config,
            installer,
            show,
        };
        Ok((entry, installations))
    }

    async fn add(
        &self,
        entry: &Entry,
        name: AgentName,
        flags: &InstallFlags,
    ) -> Result<Installation, Failure> {
        let mut others = installed(&self.installer.agents)?;
        others.retain(|(_, record)| record.id == entry.id);
        let entries = EntryFile::open(&self.file, self.installer.agents.join(&entry.id))?;
        for (folder, Record { id, version, .. }) in others {
            if entries.has_installed() {
                return Err(format!(
                    "{id} {version} is installed; `acp-gateway agent update {id}` replaces it"
                )
                .into());
            }
            // An installation that ended during the first start of the agent has a record, but no entry.
            if version == entry.version {
                self.installer.discard(&folder);
            }
        }
        self.install(entry, flags.request(name)).await
    }

    async fn update(&self, entry: &Entry, flags: &InstallFlags) -> Result<Outcome, Failure> {
        let mut earlier = installed(&self.installer.agents)?;
        earlier.retain(|(_, record)| record.id == entry.id);
        earlier.sort_by_key(|(_, record)| record.installed_at);
        let Some((folder, record)) = earlier.pop() else {
            return Err(format!(
                "{0} is not installed; `acp-gateway agent add {0}` installs it",
                entry.id
            )
            .into());
        };
        let Record { id, version, .. } = record;
        let mut previous_version = Some(version.clone());
        if version == entry.version {
            if EntryFile::open(&self.file, folder.clone())?.has_installed() {
                return Ok(Outcome::Unchanged { id, version });
            }
            // An update that ended before it wrote the entry.
            self.installer.discard(&folder);
            previous_version = earlier.pop().map(|(_, record)| record.version);
        }
        let mut request = flags.request(record.name);
        request.kind = request.kind.or(Some(record.kind));
        let mut installation = self.install(entry, request).await?;
        installation.previous_version = previous_version;
        for (folder, _) in earlier {
            self.installer.discard(&folder);
        }
        Ok(Outcome::Installed(installation.into()))
    }

    async fn install(&self, entry: &Entry, request: Request) -> Result<Installation, Failure> {
        let open = || EntryFile::open(&self.file, self.installer.agents.join(&entry.id));
        let entries = open()?;
        entries.check(&request.name)?;
        entries.check_writable()?;
        lock::create_layout(&self.config.data)?;
        let done = self.installer.install(entry, &request).await?;
        // A person signs in at a terminal of the page. Other users of the gateway would sign in for everyone.
        let known = KnownAgent::of_registry(&entry.id);
        let terminal_auth =
            self.config.is_personal() && known.is_some_and(|known| known.login.is_some());
        let written = async {
            let answer = self.verify(&done, terminal_auth).await?;
            // The file may have changed during the installation.
            let mut entries = open()?;
            let Installed {
                command, args, env, ..
            } = &done;
            let entry = AgentEntry {
                command,
                args,
                env,
                from_env: &[],
                home_user: false,
                terminal_auth,
            };
            entries.put(&request.name, &entry)?;
            entries.save()?;
            Ok::<_, Failure>(answer)
        };
        match written.await {
            Ok(answer) => Ok(self.installation(done, answer)),
            Err(failure) => {
                self.installer.discard(&done.folder);
                Err(failure)
            }
        }
    }

    async fn verify(&self, done: &Installed, terminal_auth: bool) -> Result<Answer, Failure> {
        (self.show)(Step::Start);
        let work = private_folder(".start-", &self.installer.agents)?;
        let home = app::scratch_home(work.path())?;
        let programs = &self.installer.programs;
        let mut env: Vec<(OsString, OsString)> = vec![("PATH".into(), programs.path.clone())];
        let own = done.env.iter();
        env.extend(own.map(|(name, value)| (name.into(), value.into())));
        let spec = ChildSpec {
            program: done.command.clone(),
            args: done.args.iter().map(Into::into).collect(),
            env,
            home: home.clone(),
            cwd: Some(home.clone()),
            secrets: Vec::new(),
            isolation: ChildIsolation {
                level: AgentSettings::default().isolation,
                folders: vec![home],
                ..ChildIsolation::default()
            },
        };
        let isolation = app::command_isolation(&self.config, work.path())?;
        isolation.prepare(&self.installer.shutdown).await?;
        let spawner = programs.spawner.clone().with_isolation(isolation);
        let offer = ClientCapabilities {
            terminal_auth,
            ..ClientCapabilities::default()
        };
        Ok(verify(&spawner, spec, offer).await?)
    }

    fn installation(&self, done: Installed, answer: Answer) -> Installation {
        let known = KnownAgent::of_registry(&done.record.id);
        let variables = known.map(|known| known.suggested_variables.clone());
        Installation {
            key_variables: variables.unwrap_or_default(),
            record: done.record,
            folder: done.folder,
            agent: answer.agent,
            sign_in: answer.sign_in,
            config_file: self.file.clone(),
            previous_version: None,
        }
    }
}
