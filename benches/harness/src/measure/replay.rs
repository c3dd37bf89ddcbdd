//! Ten readers of an existing log: from the process that wrote it, and after a restart.

use std::fs;
use std::path::Path;

use super::{Sample, with};
use crate::Outcome;
use crate::agent::Prompt;
use crate::load::{self, Plan};
use crate::targets::{Gateway, Running as _, Target};

const READERS: usize = 10;

pub(super) fn measure(target: &dyn Target, folder: &Path, n: u64) -> Outcome<Sample> {
    let plan = Plan::new(READERS, Prompt::burst(n));
    if let Some(gateway) = target.gateway() {
        return durable(gateway, folder, plan);
    }
    with(target, folder, |running| {
        let sessions = [running.session(0)?];
        let written = load::live(running, &sessions, Plan { readers: 1, ..plan })?;
        let hot = load::replay(running, &sessions[0], plan)?;
        Ok(Sample::default()
            .checked(&written)
            .checked(&hot)
            .with([("hot_s", hot.per_second())]))
    })
}

fn durable(gateway: &Gateway, folder: &Path, plan: Plan) -> Outcome<Sample> {
    fs::create_dir_all(folder)?;
    let up = gateway.up(folder)?;
    let (id, last) = up.create()?;
    let sessions = [up.followed(&id, &last)];
    let written = load::live(&up, &sessions, Plan { readers: 1, ..plan })?;
    let hot = load::replay(&up, &sessions[0], plan)?;
    Box::new(up).stop()?;
    let up = gateway.up(folder)?;
    let session = up.followed(&id, &last);
    let disk = load::replay(&up, &session, plan)?;
    Box::new(up).stop()?;
    fs::remove_dir_all(folder)?;
    Ok(Sample::default()
        .checked(&written)
        .checked(&hot)
        .checked(&disk)
        .with([
            ("hot_s", hot.per_second()),
            ("disk_s", disk.per_second()),
            ("hot_cpu_per_m", hot.cpu_per_million()),
            ("disk_cpu_per_m", disk.cpu_per_million()),
        ]))
}
