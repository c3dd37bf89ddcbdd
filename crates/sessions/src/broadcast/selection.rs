//! The selection: the targets that a request names, and the destinations that get the message.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use uuid::Uuid;

use agents::pool::PoolProcess;
use base::types::{AgentName, SessionId};
use events::api::{BroadcastForm, BroadcastReason, BroadcastTargetKind, BroadcastTo};

#[derive(Clone)]
pub(super) struct Target {
    pub(super) kind: BroadcastTargetKind,
    pub(super) name: Option<AgentName>,
    pub(super) process: Option<Uuid>,
    pub(super) session: Option<SessionId>,
}

/// A receiver of the message. It gets the message once, also if several targets select it.
#[derive(Clone)]
pub(super) enum Destination {
    Process(Box<PoolProcess>),
    /// A member of the dialect `cca`, which has one connection for all its processes.
    Member(AgentName),
    /// A prompt in the queue of the session.
    Session(SessionId),
}

#[derive(PartialEq, Eq, Hash)]
enum Key {
    Process(Uuid),
    Member(AgentName),
    Session(SessionId),
}

pub(super) struct Reachable {
    pub(super) processes: Vec<PoolProcess>,
    pub(super) cca_members: BTreeSet<AgentName>,
    pub(super) agents: BTreeSet<AgentName>,
    /// All members of the fleet, and whether each is connected.
    pub(super) members: BTreeMap<AgentName, bool>,
}

#[derive(Default)]
pub(super) struct Selection {
    pub(super) targets: Vec<(Target, Result<usize, BroadcastReason>)>,
    pub(super) destinations: Vec<Destination>,
    positions: HashMap<Key, usize>,
}

impl Selection {
    pub(super) fn new(to: &BroadcastTo, form: BroadcastForm, reachable: &Reachable) -> Self {
        let mut selection = Self::default();
        match to {
            BroadcastTo::All(_) => selection.select_all(form, reachable),
            BroadcastTo::Selected(selected) => {
                for name in selected.agents.iter().collect::<BTreeSet<_>>() {
                    let known = reachable.agents.contains(name);
                    let named = (BroadcastTargetKind::Agent, name);
                    selection.select_agent(named, known, form, reachable);
                }
                for session in selected.sessions.iter().collect::<BTreeSet<_>>() {
                    selection.select_session(*session, form, reachable);
                }
                for name in selected.members.iter().collect::<BTreeSet<_>>() {
                    let known = reachable.members.contains_key(name);
                    let named = (BroadcastTargetKind::Member, name);
                    selection.select_agent(named, known, form, reachable);
                }
            }
        }
        selection
    }

    fn select_all(&mut self, form: BroadcastForm, reachable: &Reachable) {
        for process in &reachable.processes {
            match (form, process.holder) {
                (BroadcastForm::Prompt, Some(holder)) => {
                    self.select_session(holder.session, form, reachable);
                }
                (BroadcastForm::Prompt, None) => {}
                (BroadcastForm::Notification, _)
                    if reachable.cca_members.contains(&process.spec.name) => {}
                (BroadcastForm::Notification, _) => {
                    let named = (BroadcastTargetKind::Agent, &process.spec.name);
                    self.add_process(named, process, reachable);
                }
            }
        }
        if form == BroadcastForm::Notification {
            for name in &reachable.cca_members {
                let target = target((BroadcastTargetKind::Member, name), None);
                let (key, destination) = member(name);
                self.add(target, key, destination);
            }
        }
    }

    fn select_agent(
        &mut self,
        named: (BroadcastTargetKind, &AgentName),
        known: bool,
        form: BroadcastForm,
        reachable: &Reachable,
    ) {
        if !known {
            return self
                .targets
                .push((target(named, None), Err(BroadcastReason::Unknown)));
        }
        let first = self.targets.len();
        if form == BroadcastForm::Notification && reachable.cca_members.contains(named.1) {
            let (key, destination) = member(named.1);
            return self.add(target(named, None), key, destination);
        }
        for process in reachable
            .processes
            .iter()
            .filter(|process| process.spec.name == *named.1)
        {
            match (form, process.holder) {
                (BroadcastForm::Notification, _) => self.add_process(named, process, reachable),
                (BroadcastForm::Prompt, Some(holder)) => {
                    let session = holder.session;
                    let target = Target {
                        session: Some(session),
                        ..target(named, None)
                    };
                    self.add(target, Key::Session(session), Destination::Session(session));
                }
                (BroadcastForm::Prompt, None) => {}
            }
        }
        if self.targets.len() == first {
            let reason = match form {
                _ if reachable.members.get(named.1) == Some(&false) => {
                    BroadcastReason::Disconnected
                }
                BroadcastForm::Notification => BroadcastReason::NoProcess,
                BroadcastForm::Prompt => BroadcastReason::NoSession,
            };
            self.targets.push((target(named, None), Err(reason)));
        }
    }

    fn select_session(&mut self, session: SessionId, form: BroadcastForm, reachable: &Reachable) {
        let mut target = Target {
            kind: BroadcastTargetKind::Session,
            name: None,
            process: None,
            session: Some(session),
        };
        if form == BroadcastForm::Prompt {
            return self.add(target, Key::Session(session), Destination::Session(session));
        }
        let holds = |process: &&PoolProcess| {
            process
                .holder
                .is_some_and(|holder| holder.session == session)
        };
        match reachable.processes.iter().find(holds) {
            Some(process) => {
                target.process = Some(process.id);
                let (key, destination) = destination(process, reachable);
                self.add(target, key, destination);
            }
            None => self.targets.push((target, Err(BroadcastReason::NoProcess))),
        }
    }

    fn add_process(
        &mut self,
        named: (BroadcastTargetKind, &AgentName),
        process: &PoolProcess,
        reachable: &Reachable,
    ) {
        let (key, destination) = destination(process, reachable);
        self.add(target(named, Some(process)), key, destination);
    }

    fn add(&mut self, target: Target, key: Key, destination: Destination) {
        let position = *self.positions.entry(key).or_insert_with(|| {
            self.destinations.push(destination);
            self.destinations.len() - 1
        });
        self.targets.push((target, Ok(position)));
    }
}

fn target(
    (kind, name): (BroadcastTargetKind, &AgentName),
    process: Option<&PoolProcess>,
) -> Target {
    Target {
        kind,
        name: Some(name.clone()),
        process: process.map(|process| process.id),
        session: process
            .and_then(|process| process.holder)
            .map(|holder| holder.session),
    }
}

/// The destination of a notification for a process. A member of the dialect `cca` has no processes of its own.
fn destination(process: &PoolProcess, reachable: &Reachable) -> (Key, Destination) {
    let name = &process.spec.name;
    if reachable.cca_members.contains(name) {
        return member(name);
    }
    let destination = Destination::Process(Box::new(process.clone()));
    (Key::Process(process.id), destination)
}

fn member(name: &AgentName) -> (Key, Destination) {
    (Key::Member(name.clone()), Destination::Member(name.clone()))
}
