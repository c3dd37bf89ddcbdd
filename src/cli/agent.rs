//! `agent search|add|list|update|remove`: installs agents by their id in an ACP registry.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};

use super::attach::tls_client;
use super::output::{Failure, RemovedFolder, create_private, multi_thread_runtime};
use super::source::ConfigSource;
use super::{lock, output};
use crate::app;
use crate::config::{self, AgentEntry, Config, EntryFile, Environment, Flags};
use crate::registry::{
    Answer, DEFAULT_SOURCE, Entry, Index, Installed, Installer, Kind, Programs, Record, Request,
    Source, installed, verify,
};
use base::shutdown::Shutdown;
use base::types::text::strip_controls;
use base::types::{AgentName, AgentSettings, Ids, KnownAgent, Limits, OWN_PROGRAM};
use children::{ChildIsolation, ChildSpec, Spawner};

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

pub(super) fn run(command: &AgentCommand, flags: &Flags) -> Result<(), Failure> {
    let environment = Environment::from_process();
    let runtime = multi_thread_runtime()?;
    match command {
        AgentCommand::Search { text, registry } => {
            let index = runtime.block_on(load(registry, flags, &environment))?;
            Ok(output::write_stdout(
                found(&index, text.as_deref()).as_bytes(),
            )?)
        }
        AgentCommand::List => {
            let config = config::load_local(flags, &environment)?;
            Ok(output::write_stdout(
                listed(&installed(&agents_folder(&config)?)?).as_bytes(),
            )?)
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
                let installation = Installation::new(flags, &environment, registry, install)?;
                installation.add(&entry, name).await
            })
        }
        AgentCommand::Update {
            id,
            registry,
            install,
        } => runtime.block_on(async {
            let entry = load(registry, flags, &environment).await?.find(id, None)?;
            Installation::new(flags, &environment, registry, install)?
                .update(&entry)
                .await
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
    let contains = |entry: &Entry| {
        [&entry.id, &entry.name, &entry.description]
            .iter()
            .any(|of| of.to_lowercase().contains(&text))
    };
    index
        .entries()
        .filter(contains)
        .fold(String::new(), |mut lines, entry| {
            let kinds: Vec<_> = entry.kinds().iter().map(Kind::to_string).collect();
            let description = strip_controls(&entry.description);
            writeln!(
                lines,
                "{:<24} {:<12} {:<16} {description}",
                entry.id,
                entry.version,
                kinds.join(",")
            )
            .expect("writing to a string does not fail");
            lines
        })
}

fn listed(installed: &[(PathBuf, Record)]) -> String {
    installed
        .iter()
        .fold(String::new(), |mut lines, (_, record)| {
            writeln!(
                lines,
                "{:<24} {:<12} {:<8} [agents.{}]  {}",
                record.id, record.version, record.kind, record.name, record.installed_at
            )
            .expect("writing to a string does not fail");
            lines
        })
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
    let removed = installed(&agents_folder(&config)?)?
        .into_iter()
        .filter(|(_, record)| record.id == id);
    let removed: Vec<_> = removed.collect();
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
        drop(folder.parent().map(std::fs::remove_dir));
        output::write_line(&format!("removed {id} {}{entry}", record.version))?;
    }
    Ok(output::write_line(RELOAD)?)
}

const RELOAD: &str = "a running gateway reads its configuration again on SIGHUP";

struct Installation {
    file: PathBuf,
    config: Config,
    installer: Installer,
    request: Request,
    shutdown: Shutdown,
    path: OsString,
}

impl Installation {
    fn new(
        flags: &Flags,
        environment: &Environment,
        registry: &RegistryFlags,
        install: &InstallFlags,
    ) -> Result<Self, Failure> {
        let file = config_file(flags, environment)?;
        if !file.exists() {
            EntryFile::open(&file, PathBuf::new())?.save()?;
        }
        let config = ConfigSource::new(flags).load()?;
        let shutdown = Shutdown::new();
        let limits = Arc::new(Limits::default());
        let spawner = Spawner::new(OWN_PROGRAM.into(), None, shutdown.clone(), limits);
        let programs = Programs {
            spawner,
            env: environment.of_package_managers(),
            path: environment.search_path().to_owned(),
            home: environment
                .home()
                .unwrap_or_else(|| config.data.path().to_owned()),
        };
        let source = source(registry, flags, environment)?;
        // The archives of a registry on this machine can have URLs.
        let client = tls_client(registry.ca_file.as_ref(), true, environment)?;
        let installer = Installer {
            agents: agents_folder(&config)?,
            source,
            client,
            programs,
            ids: Ids::system(),
            shutdown: shutdown.clone(),
        };
        let request = Request {
            name: "agent".parse()?,
            kind: install.kind,
            sha256: install.sha256.clone(),
            allow_scripts: install.allow_scripts,
        };
        let path = environment.search_path().to_owned();
        Ok(Self {
            file,
            config,
            installer,
            request,
            shutdown,
            path,
        })
    }

    async fn add(mut self, entry: &Entry, name: AgentName) -> Result<(), Failure> {
        let former = installed(&self.installer.agents)?;
        if let Some((_, record)) = former.iter().find(|(_, record)| record.id == entry.id) {
            let (id, version) = (&record.id, &record.version);
            return Err(format!(
                "{id} {version} is installed; `acp-gateway agent update {id}` replaces it"
            )
            .into());
        }
        self.request.name = name;
        self.install(entry).await.map(drop)
    }

    async fn update(mut self, entry: &Entry) -> Result<(), Failure> {
        let mut former = installed(&self.installer.agents)?;
        former.retain(|(_, record)| record.id == entry.id);
        former.sort_by_key(|(_, record)| record.installed_at);
        let Some((_, record)) = former.pop() else {
            return Err(format!(
                "{0} is not installed; `acp-gateway agent add {0}` installs it",
                entry.id
            )
            .into());
        };
        if record.version == entry.version {
            return Ok(output::write_line(&format!(
                "{} {} is the version of the registry",
                record.id, record.version
            ))?);
        }
        self.request.name = record.name;
        self.request.kind = self.request.kind.or(Some(record.kind));
        self.install(entry).await?;
        for (folder, _) in former {
            self.installer.discard(&folder);
        }
        let version = record.version;
        Ok(output::write_line(&format!(
            "version {version} stays until the next update, for running processes"
        ))?)
    }

    async fn install(&self, entry: &Entry) -> Result<Installed, Failure> {
        let open = || EntryFile::open(&self.file, self.installer.agents.join(&entry.id));
        open()?.check(&self.request.name)?;
        lock::create_layout(&self.config.data)?;
        let done = self.installer.install(entry, &self.request).await?;
        let written = async {
            let answer = self.verify(&done).await?;
            // The file may have changed during the installation.
            let mut entries = open()?;
            let Installed {
                command, args, env, ..
            } = &done;
            entries.put(&self.request.name, &AgentEntry { command, args, env })?;
            entries.save()?;
            Ok::<_, Failure>(answer)
        };
        match written.await {
            Ok(answer) => {
                output::write_stdout(self.report(&done, &answer).as_bytes())?;
                Ok(done)
            }
            Err(failure) => {
                self.installer.discard(&done.folder);
                Err(failure)
            }
        }
    }

    async fn verify(&self, done: &Installed) -> Result<Answer, Failure> {
        let work = self
            .installer
            .agents
            .join(format!(".start-{}", base::types::random_uuid()));
        let home = work.join("home");
        create_private(&home)?;
        let _removed = RemovedFolder(work.clone());
        let mut env: Vec<(OsString, OsString)> = vec![("PATH".into(), self.path.clone())];
        env.extend(
            done.env
                .iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
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
        let isolation = app::command_isolation(&self.config, work.join("tmp"));
        isolation.prepare(&self.shutdown).await?;
        let spawner = self
            .installer
            .programs
            .spawner
            .clone()
            .with_isolation(isolation);
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
