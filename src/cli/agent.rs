//! `agent search|add|list|update|remove`: installs agents by their id in an ACP registry.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};

use super::attach::tls_client;
use super::output::{Failure, multi_thread_runtime, private_folder};
use super::source::ConfigSource;
use super::{lock, output};
use crate::app;
use crate::config::{self, AgentEntry, Config, EntryFile, Environment, Flags};
use crate::registry::{
    Answer, DEFAULT_SOURCE, Entry, Index, Installed, Installer, Kind, Programs, Record, Request,
    Source, installed, verify,
};
use agents::agent::AgentSettings;
use base::shutdown::Shutdown;
use base::types::text::strip_controls;
use base::types::{AgentName, Ids, OWN_PROGRAM};
use children::{ChildIsolation, ChildSpec, Spawner};
use wire::acp::KnownAgent;

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

#[derive(Debug, Args)]
pub(super) struct RegistryFlags {
    /// The registry: an https URL, or a file [default: `registry.source`, or the registry of the ACP project]
    #[arg(long, value_name = "URL|FILE")]
    registry: Option<String>,
    /// A file with certificates in PEM that are trusted in addition to those of the system
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
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

pub(super) fn run(command: &AgentCommand, flags: &Flags) -> Result<(), Failure> {
    let environment = Environment::from_process();
    let runtime = multi_thread_runtime()?;
    match command {
        AgentCommand::Search { text, registry } => {
            let index = runtime.block_on(load(registry, flags, &environment))?;
            Ok(output::write_stdout(found(&index, text.as_deref()))?)
        }
        AgentCommand::List => {
            let config = config::load_local(flags, &environment)?;
            Ok(output::write_stdout(listed(&installed(&agents_folder(
                &config,
            )?)?))?)
        }
        AgentCommand::Remove { id } => remove(id, flags, &environment),
        AgentCommand::Add {
            agent,
            name,
            registry,
            install,
        } => {
            let (id, version) = agent
                .split_once('@')
                .map_or((&**agent, None), |(id, version)| (id, Some(version)));
            runtime.block_on(async {
                let entry = load(registry, flags, &environment)
                    .await?
                    .find(id, version)?;
                let name = name.clone().map_or_else(|| id.parse(), Ok)?;
                let installation = Installation::new(flags, &environment, registry)?;
                installation.add(&entry, name, install).await
            })
        }
        AgentCommand::Update {
            id,
            registry,
            install,
        } => runtime.block_on(async {
            let entry = load(registry, flags, &environment).await?.find(id, None)?;
            let installation = Installation::new(flags, &environment, registry)?;
            installation.update(&entry, install).await
        }),
    }
}

fn source(
    registry: &RegistryFlags,
    flags: &Flags,
    environment: &Environment,
) -> Result<Source, Failure> {
    if let Some(source) = &registry.registry {
        return Ok(Source::parse(source));
    }
    let has_file = flags.config.as_ref().is_none_or(|file| file.exists());
    let config = if has_file {
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

fn found(index: &Index, text: Option<&str>) -> String {
    let text = text.unwrap_or_default().to_lowercase();
    let mut lines = String::new();
    for entry in index.entries() {
        let texts = [&entry.id, &entry.name, &entry.description];
        if texts.iter().any(|of| of.to_lowercase().contains(&text)) {
            let kinds: Vec<_> = entry.kinds().iter().map(Kind::to_string).collect();
            let kinds = kinds.join(",");
            let description = strip_controls(&entry.description);
            lines += &format!(
                "{:<24} {:<12} {kinds:<16} {description}\n",
                entry.id, entry.version
            );
        }
    }
    lines
}

fn listed(installed: &[(PathBuf, Record)]) -> String {
    let line = |(_, record): &(PathBuf, Record)| {
        format!(
            "{:<24} {:<12} {:<8} [agents.{}]  {}\n",
            record.id, record.version, record.kind, record.name, record.installed_at
        )
    };
    installed.iter().map(line).collect()
}

/// The folder of all installations. The command of an entry is an absolute path.
fn agents_folder(config: &Config) -> std::io::Result<PathBuf> {
    std::path::absolute(config.data.agents())
}

fn config_file(flags: &Flags, environment: &Environment) -> Result<PathBuf, Failure> {
    let file = flags.config.clone().or_else(|| environment.config_file());
    Ok(file.ok_or(
        "name the configuration file with --config; the command writes the entry of the agent into it",
    )?)
}

fn remove(id: &str, flags: &Flags, environment: &Environment) -> Result<(), Failure> {
    let file = config_file(flags, environment)?;
    let config = config::load_local(flags, environment)?;
    let mut entries = EntryFile::open(&file, agents_folder(&config)?.join(id))?;
    let mut removed = installed(&agents_folder(&config)?)?;
    removed.retain(|(_, record)| record.id == id);
    if removed.is_empty() {
        return Err(format!(
            "{id} is not installed; `acp-gateway agent list` lists the installed agents"
        )
        .into());
    }
    for (folder, record) in removed {
        let entry = if entries.remove(&record.name) {
            " and its entry"
        } else {
            ""
        };
        entries.save()?;
        std::fs::remove_dir_all(&folder)?;
        // It fails while other versions are installed.
        let _ = folder.parent().map(std::fs::remove_dir);
        output::write_line(&format!("removed {id} {}{entry}", record.version))?;
    }
    Ok(output::write_line(RELOAD)?)
}

const RELOAD: &str = "a running gateway reads its configuration again on SIGHUP";

struct Installation {
    file: PathBuf,
    config: Config,
    installer: Installer,
}

impl Installation {
    fn new(
        flags: &Flags,
        environment: &Environment,
        registry: &RegistryFlags,
    ) -> Result<Self, Failure> {
        let file = config_file(flags, environment)?;
        if !file.exists() {
            EntryFile::open(&file, PathBuf::new())?.save()?;
        }
        let config = ConfigSource::new(flags).load()?;
        let shutdown = Shutdown::new();
        let home = environment.home();
        let programs = Programs {
            spawner: Spawner::new(OWN_PROGRAM.into(), None, shutdown.clone(), Arc::default()),
            env: environment.of_package_managers(),
            path: environment.search_path().to_owned(),
            home: home.unwrap_or_else(|| config.data.path().to_owned()),
        };
        let installer = Installer {
            agents: agents_folder(&config)?,
            source: source(registry, flags, environment)?,
            // The archives of a registry on this machine can have URLs.
            client: tls_client(registry.ca_file.as_ref(), true, environment)?,
            programs,
            ids: Ids::system(),
            shutdown,
        };
        Ok(Self {
            file,
            config,
            installer,
        })
    }

    async fn add(
        &self,
        entry: &Entry,
        name: AgentName,
        flags: &InstallFlags,
    ) -> Result<(), Failure> {
        let others = installed(&self.installer.agents)?;
        if let Some((_, record)) = others.iter().find(|(_, record)| record.id == entry.id) {
            let Record { id, version, .. } = record;
            return Err(format!(
                "{id} {version} is installed; `acp-gateway agent update {id}` replaces it"
            )
            .into());
        }
        self.install(entry, flags.request(name)).await
    }

    async fn update(&self, entry: &Entry, flags: &InstallFlags) -> Result<(), Failure> {
        let mut earlier = installed(&self.installer.agents)?;
        earlier.retain(|(_, record)| record.id == entry.id);
        earlier.sort_by_key(|(_, record)| record.installed_at);
        let Some((_, record)) = earlier.pop() else {
            return Err(format!(
                "{0} is not installed; `acp-gateway agent add {0}` installs it",
                entry.id
            )
            .into());
        };
        let version = record.version;
        if version == entry.version {
            let id = record.id;
            let text = format!("{id} {version} is the version of the registry");
            return Ok(output::write_line(&text)?);
        }
        let mut request = flags.request(record.name);
        request.kind = request.kind.or(Some(record.kind));
        self.install(entry, request).await?;
        for (folder, _) in earlier {
            self.installer.discard(&folder);
        }
        Ok(output::write_line(&format!(
            "version {version} stays until the next update, for running processes"
        ))?)
    }

    async fn install(&self, entry: &Entry, request: Request) -> Result<(), Failure> {
        let open = || EntryFile::open(&self.file, self.installer.agents.join(&entry.id));
        open()?.check(&request.name)?;
        lock::create_layout(&self.config.data)?;
        let done = self.installer.install(entry, &request).await?;
        let written = async {
            let answer = self.verify(&done).await?;
            // The file may have changed during the installation.
            let mut entries = open()?;
            let Installed {
                command, args, env, ..
            } = &done;
            entries.put(&request.name, &AgentEntry { command, args, env })?;
            entries.save()?;
            Ok::<_, Failure>(answer)
        };
        match written.await {
            Ok(answer) => Ok(output::write_stdout(self.report(&done, &answer))?),
            Err(failure) => {
                self.installer.discard(&done.folder);
                Err(failure)
            }
        }
    }

    async fn verify(&self, done: &Installed) -> Result<Answer, Failure> {
        let work = private_folder(".start-", &self.installer.agents)?;
        let home = work.path().join("home");
        std::fs::create_dir(&home)?;
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
        let isolation = app::command_isolation(&self.config, work.path().join("tmp"));
        isolation.prepare(&self.installer.shutdown).await?;
        let spawner = programs.spawner.clone().with_isolation(isolation);
        Ok(verify(&spawner, spec).await?)
    }

    fn report(&self, done: &Installed, answer: &Answer) -> String {
        let record = &done.record;
        let mut text = format!(
            "installed {} {} ({}) in {}\n",
            record.id,
            record.version,
            record.kind,
            done.folder.display()
        );
        let mut line = |part: String| text.push_str(&(strip_controls(&part).into_owned() + "\n"));
        if let Some(sha256) = &record.sha256 {
            line(format!("sha256 {sha256}"));
        }
        line(format!(
            "it answers as {}",
            answer.agent.as_deref().unwrap_or("an agent without a name")
        ));
        if !answer.sign_in.is_empty() {
            line(format!("sign-in: {}", answer.sign_in.join(", ")));
        }
        if let Some(known) = KnownAgent::find(&done.command.to_string_lossy(), &done.args)
            && !known.suggested_variables.is_empty()
        {
            line(format!(
                "key: set {} in `env` of the entry",
                known.suggested_variables.join(" or ")
            ));
        }
        line(format!(
            "wrote [agents.{}] to {}; {RELOAD}",
            record.name,
            self.file.display()
        ));
        text
    }
}
