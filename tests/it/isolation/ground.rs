//! A gateway with a hostile agent, another agent, and the objects that the hostile agent attacks.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use reqwest::StatusCode;
use rustix::process::geteuid;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::control_group::{DelegatedGroup, folder_of};
use crate::support::gateway::command;
use crate::support::places::{is_reachable, open_parent, project, scratch};
use crate::support::procfs::descendants;
use crate::support::{Gateway, Setup, figure, is_alive};

/// The content of everything that the hostile agent must not read.
pub(super) const SECRET: &str = "a-secret-that-no-agent-may-read";

const PYTHON: &str = "python3";

/// Programs that every user can execute.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The user and group `nobody`.
pub(super) const NOBODY: u32 = 65534;

/// The first user of the first range of `isolation.run_as`, and the size of each range.
const FIRST_USER: u32 = 300_000;
const RANGE: u32 = 10;

/// The user of the gateway and its agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    Root,
    /// The gateway runs as root, and its agents as the users of a range (`isolation.run_as`). The agent that starts
    /// first has this user.
    RunAs(u32),
    Unprivileged,
}

/// The isolation features of the gateway's machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machine {
    Namespaces,
    /// User namespaces fail.
    LandlockOnly,
    /// Landlock fails.
    NamespacesOnly,
    /// No mechanism works.
    Bare,
    /// As the machine that runs the tests.
    Any,
}

impl User {
    /// The users that this test can be. Only root can become another user.
    pub(super) fn all() -> Vec<Self> {
        if !geteuid().is_root() {
            return vec![Self::Unprivileged];
        }
        let users = [Self::Root, Self::run_as(), Self::Unprivileged];
        users.into_iter().filter(|user| user.can_run()).collect()
    }

    /// Whether the user can reach the programs of the tests, which may be in the home of root.
    pub(crate) fn can_run(self) -> bool {
        let can = self == Self::Root
            || !geteuid().is_root()
            || [project(), scratch()].into_iter().all(is_reachable);
        if !can {
            let project = project().display();
            figure(&format!(
                "without {self:?}: other users cannot reach {project}"
            ));
        }
        can
    }

    /// The user id of the gateway, if this test runs as root.
    pub(super) fn id(self) -> u32 {
        if self == Self::Unprivileged {
            NOBODY
        } else {
            0
        }
    }

    /// A range for one gateway. A gateway does not use the users of processes of another one.
    pub(super) fn run_as() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let ranges =
            (std::process::id() % 1000) * 100 + COUNT.fetch_add(1, Ordering::Relaxed) % 100;
        Self::RunAs(FIRST_USER + ranges * RANGE)
    }

    /// The value of `isolation.run_as`.
    pub(super) fn range(self) -> Option<String> {
        let Self::RunAs(first) = self else {
            return None;
        };
        Some(format!("{first}-{}", first + RANGE - 1))
    }

    /// The program that starts a gateway of this user.
    pub(super) fn words(self) -> Vec<String> {
        if self == Self::Unprivileged {
            become_user(NOBODY)
        } else {
            Vec::new()
        }
    }

    /// Whether a service of this machine may start programs for the user, so that Landlock alone is incomplete.
    pub(super) fn has_service(self) -> bool {
        let mut words = self.words();
        words.extend([PYTHON.to_owned(), script("services.py")]);
        let found = command(&words[0])
            .env("PATH", PATH)
            .args(&words[1..])
            .status();
        found.expect("python is installed").success()
    }

    /// The user of the first agent. `None`: that of the test.
    fn of_agents(self) -> Option<u32> {
        let user = match self {
            Self::Root => None,
            Self::RunAs(first) => Some(first),
            Self::Unprivileged => Some(NOBODY),
        };
        user.filter(|_| geteuid().is_root())
    }

    /// Makes a folder of the test accessible to the agent of this user.
    pub(super) fn own(self, path: &Path) {
        if let Some(user) = self.of_agents() {
            chown(path, Some(user), Some(user)).expect("root can change the owner");
            for entry in path.read_dir().into_iter().flatten() {
                self.own(&entry.expect("the folder is ours").path());
            }
        }
    }
}

/// The program that becomes another user, if this one is root.
fn become_user(user: u32) -> Vec<String> {
    if !geteuid().is_root() {
        return Vec::new();
    }
    let id = user.to_string();
    let words = ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"];
    words.map(str::to_owned).to_vec()
}

pub(super) fn script(name: &str) -> String {
    format!("{}/tests/isolation/{name}", project().display())
}

/// The parent of the folders of gateways: each level shows it, if the machine has such a place for the user of the tests.
pub(crate) fn outside_tmp() -> &'static Path {
    open_parent().unwrap_or(scratch())
}

/// Whether gateways of this test have a mount of all message queues. Root creates one.
pub(super) fn has_queues() -> bool {
    let device = |path| std::fs::metadata(path).map(|meta| meta.dev()).ok();
    geteuid().is_root()
        || device("/dev/mqueue").is_some_and(|queues| Some(queues) != device("/dev"))
}

/// The program that becomes the gateway.
pub(crate) fn run_by(user: User, machine: Machine) -> Vec<String> {
    let mut words = vec![PYTHON.to_owned(), script("queues.py")];
    words.extend(user.words());
    let missing = match machine {
        Machine::Namespaces | Machine::Any => return words,
        Machine::LandlockOnly => "namespaces",
        Machine::NamespacesOnly => "landlock",
        Machine::Bare => "namespaces,landlock",
    };
    words.extend([
        PYTHON.to_owned(),
        script("limited_machine.py"),
        missing.to_owned(),
    ]);
    words
}

/// Two agents with the program `hostile.py`, `hostile` and `sibling`, at this level.
pub(crate) fn setup(user: User, machine: Machine, level: &str, more: &str) -> Setup {
    setup_in(None, user, machine, level, more)
}

/// As [`setup`], in a control group.
pub(super) fn setup_in(
    group: Option<&DelegatedGroup>,
    user: User,
    machine: Machine,
    level: &str,
    more: &str,
) -> Setup {
    let mut words = group.map(DelegatedGroup::words).unwrap_or_default();
    words.extend(run_by(user, machine));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let agent = |setup: Setup, name: &str| {
        let more = format!(
            "isolation = {level:?}\nfiles = \"gateway\"\nterminals = \"gateway\"\n\
             env = {{ AGENT_NAME = {name:?}, AGENT_SECRET = {SECRET:?} }}\n{more}"
        );
        setup.agent(name, &script("hostile.py"), &[], &more)
    };
    let mut setup = Setup::default().run_by(&words).below(outside_tmp());
    if let Some(range) = user.range() {
        setup = setup.settings(&format!("isolation.run_as = {range:?}"));
    }
    agent(agent(setup, "hostile"), "sibling")
}

/// Starts the gateway. Its home contains a folder of programs.
pub(crate) fn start(setup: Setup, user: User) -> Gateway {
    start_after(setup, user, |_| ())
}

/// As [`start`], after `prepare` has changed the home.
pub(crate) fn start_after(setup: Setup, user: User, prepare: impl FnOnce(&Path)) -> Gateway {
    setup.start_with(|folder| {
        prepare(folder);
        std::fs::create_dir(folder.join("bin")).expect("the folder is ours");
        std::fs::write(folder.join("operator-secret"), SECRET).expect("the folder is ours");
        if user.range().is_some() {
            // The users of agents reach their homes below it.
            std::fs::set_permissions(folder, Permissions::from_mode(0o755))
                .expect("the folder is ours");
        } else {
            user.own(folder);
        }
        let path = format!("{}/bin:{PATH}", folder.display());
        vec![("PATH", OsString::from(path))]
    })
}

/// A session and the folder of its files.
pub(crate) struct Opened {
    pub(crate) id: String,
    pub(crate) cwd: PathBuf,
    pub(crate) json: Value,
}

pub(super) async fn open(gateway: &Gateway, body: &Value) -> Opened {
    let (status, session) = gateway.post("/v1/sessions", body).await;
    assert_eq!(status, StatusCode::CREATED, "{session}\n{}", gateway.log());
    let text = |name: &str| session[name].as_str().expect("a text").to_owned();
    Opened {
        id: text("sessionId"),
        cwd: text("cwd").into(),
        json: session,
    }
}

/// Runs one order of the agent, and returns the JSON that it wrote to this file of its session.
pub(crate) async fn order(
    gateway: &Gateway,
    session: &Opened,
    order: &Value,
    result: &str,
) -> Value {
    let mut order = order.clone();
    order["cwd"] = json!(session.cwd);
    let turn = gateway.turn(&session.id, &order.to_string()).await;
    assert_eq!(turn["stopReason"], "end_turn", "{turn}\n{}", gateway.log());
    let text = std::fs::read_to_string(session.cwd.join(result)).expect("the agent wrote it");
    serde_json::from_str(&text).expect("JSON")
}

/// A variable of a process.
pub(super) fn variable(pid: u32, name: &str) -> Option<String> {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let prefix = format!("{name}=");
    let text = String::from_utf8_lossy(&environ).into_owned();
    text.split('\0')
        .find_map(|entry| entry.strip_prefix(&prefix))
        .map(str::to_owned)
}

/// The processes of an agent with this name that run its program, by their pids outside of all namespaces.
pub(super) fn agents(gateway: &Gateway, name: &str) -> Vec<u32> {
    let runs_script = |pid: u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        // The supervisors have the same arguments after their own.
        line.starts_with(b"python") || line.starts_with(b"/usr/bin/python")
    };
    let all = descendants(gateway.pid()).into_iter();
    all.filter(|pid| runs_script(*pid) && variable(*pid, "AGENT_NAME").as_deref() == Some(name))
        .collect()
}

/// The child of the gateway above a process.
pub(super) fn supervisor_of(gateway: &Gateway, pid: u32) -> u32 {
    let mut below = pid;
    loop {
        let parent = parent_of(below).expect("the process runs below the gateway");
        if parent == gateway.pid() {
            return below;
        }
        below = parent;
    }
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// A process of the same user outside of the gateway.
pub(super) struct Victim {
    child: Child,
    pub(super) targets: Value,
}

impl Victim {
    pub(super) fn start(user: User, folder: &Path) -> Self {
        let mut words = user.of_agents().map(become_user).unwrap_or_default();
        words.extend([PYTHON.to_owned(), script("victim.py"), SECRET.to_owned()]);
        let mut started = command(&words[0]);
        started
            .env("PATH", PATH)
            .args(&words[1..])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = started.spawn().expect("python is installed");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        output.read_line(&mut line).expect("its line");
        Self {
            child,
            targets: serde_json::from_str(&line).expect("JSON"),
        }
    }

    /// Whether both processes that it offers as victims run.
    pub(super) fn running(&self) -> [bool; 2] {
        let pid = |index: usize| self.targets["sleepers"][index].as_u64().expect("a pid");
        [0, 1].map(|index| is_alive(u32::try_from(pid(index)).expect("a pid")))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// The gateway, its two agents, and the targets of the hostile agent.
pub(super) struct Ground {
    pub(super) gateway: Gateway,
    pub(super) hostile: Opened,
    pub(super) victim: Victim,
    pub(super) targets: Value,
    /// A folder that no key of the configuration names.
    _elsewhere: TempDir,
    /// The group in which the gateway was started. `None` if the machine permits none.
    pub(super) group: Option<DelegatedGroup>,
}

impl Ground {
    pub(super) async fn new(user: User, machine: Machine, level: &str) -> Self {
        let command = if level == "strict" {
            "isolation_command = [\"env\"]\n"
        } else {
            ""
        };
        let group = DelegatedGroup::create(user);
        let gateway = start(
            setup_in(group.as_ref(), user, machine, level, command),
            user,
        );
        let hostile = open(&gateway, &json!({ "agent": "hostile" })).await;
        let sibling = open(&gateway, &json!({ "agent": "sibling" })).await;
        // Sessions start their processes before they exist.
        let process = |name: &str| *agents(&gateway, name).first().expect("its process runs");
        let own = process("hostile");
        let other = process("sibling");
        let home = |pid: u32| PathBuf::from(variable(pid, "HOME").expect("each agent has a home"));
        let data = gateway.path("data");
        let private = data.join("private");
        let elsewhere = tempfile::tempdir_in(outside_tmp()).expect("a folder");
        let files = [
            private.join("secret"),
            private.join("truncated"),
            private.join("renamed"),
            private.join("deleted"),
            private.join("changed"),
            home(other).join("secret"),
            sibling.cwd.join("secret"),
            elsewhere.path().join("secret"),
        ];
        for file in &files {
            std::fs::write(file, SECRET).expect("the folder is ours");
            user.own(file);
        }
        user.own(elsewhere.path());
        let victim = Victim::start(user, elsewhere.path());
        let mut targets = json!({
            "secret": SECRET, "session": hostile.id, "cwd": hostile.cwd, "home": home(own),
            "gateway": gateway.pid(), "port": port(&gateway), "sibling": other,
            "supervisor": supervisor_of(&gateway, own),
            "data": data, "private": private, "database": private.join("log.sqlite"),
            "privateFile": files[0], "truncated": files[1], "renamed": files[2], "deleted": files[3],
            "changed": files[4], "siblingFile": files[5], "workspaceFile": files[6], "elsewhereFile": files[7],
            "siblingHome": home(other), "homes": home(other).parent().expect("a tenant"), "siblingWorkspace": sibling.cwd,
            "workspaces": data.join("workspaces"), "operatorHome": gateway.path(""),
            "operatorFile": gateway.path("operator-secret"), "programs": gateway.path("bin"),
            "elsewhere": elsewhere.path(), "tmp": "/tmp", "shm": "/dev/shm",
            "services": Path::new("/run").read_dir().is_ok_and(|mut entries| entries.next().is_some()),
        });
        let own_group = folder_of(&gateway.pid().to_string()).filter(|folder| folder.exists());
        if let Some(folder) = own_group {
            targets["gatewayGroupInode"] =
                json!(std::fs::metadata(&folder).expect("a folder").ino());
            targets["gatewayGroup"] = json!(folder);
            targets["ownGroup"] = json!(folder_of(&own.to_string()));
        }
        for (name, value) in victim.targets.as_object().expect("an object") {
            targets[name] = value.clone();
        }
        let tmp_name = Path::new(targets["tmpFile"].as_str().expect("a path")).file_name();
        targets["listed"] = json!({
            "private": ["log.sqlite"], "siblingHome": ["secret"], "homes": ["sibling"],
            "workspaces": [sibling.id], "operatorHome": ["config.toml"],
            "tmp": [tmp_name.expect("a name").to_string_lossy()],
        });
        Self {
            gateway,
            hostile,
            victim,
            targets,
            _elsewhere: elsewhere,
            group,
        }
    }

    pub(super) fn path(&self, target: &str) -> PathBuf {
        self.targets[target].as_str().expect("a path").into()
    }
}

/// All processes that run with the home of an agent, also outside of its supervisor.
pub(super) fn at_home_of_agents(gateway: &Gateway) -> Vec<u32> {
    let homes = gateway.path("data").join("homes");
    let is_there =
        |pid: &u32| variable(*pid, "HOME").is_some_and(|home| Path::new(&home).starts_with(&homes));
    let all = std::fs::read_dir("/proc").expect("/proc");
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| is_alive(*pid)).filter(is_there).collect()
}

pub(super) fn port(gateway: &Gateway) -> u16 {
    gateway
        .url
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok())
        .expect("an address with a port")
}
