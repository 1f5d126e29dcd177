//! A folder of its own for one window: the sample trace with its rows, what the scenario wants beside it, and room for what
//! is exported. Nothing is left of it.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use loka_core::trace::{Trace, TraceData, write};
use loka_tests::{run_in, sample};
use tempfile::TempDir;

use crate::scenario::Given;

#[derive(Clone, Copy, Debug)]
pub struct Looks {
    /// Of the window, in points.
    pub size: [f32; 2],
    /// `dark` or `light`.
    pub ground: &'static str,
}

/// Who is at a window.
pub const PERSON: &str = "Ada";

pub const USUAL: Looks = Looks { size: [1280.0, 800.0], ground: "dark" };

/// Sites that a scenario probes.
const PROBED: usize = 4;

pub struct Stage {
    folder: TempDir,
    pub looks: Looks,
    pub trace: PathBuf,
}

/// Pictures are written there when a person asks for them.
pub fn pictures() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("LOKA_SIDE_BY_SIDE")?);
    std::fs::create_dir_all(&folder).unwrap();
    Some(folder)
}

impl Stage {
    /// The trace's rows lie beside it: a probe is 24 s of a core each time.
    pub fn new(plan: Option<&Given>, keys: &[String], looks: Looks) -> Self {
        let stage = Self::empty(plan, keys, looks);
        std::fs::copy(sample(), &stage.trace).unwrap();
        std::fs::write(stage.traces().join("clicks.results.parquet"), rows()).unwrap();
        stage
    }

    /// What is opened is probed: a few of the sample's sites, because whoever draws by software has no time for more.
    pub fn without_rows(plan: Option<&Given>, keys: &[String], looks: Looks) -> Self {
        let stage = Self::empty(plan, keys, looks);
        let sample = Trace::open(&sample()).unwrap();
        let mut manifest = sample.manifest().clone();
        // The last: they feed each other alone.
        manifest.sites.drain(..manifest.sites.len() - PROBED);
        let sites = manifest.sites.iter().map(|site| sample.site_stats(&site.id).unwrap()).collect();
        write(&stage.trace, &TraceData { manifest, sites }).unwrap();
        stage
    }

    fn empty(plan: Option<&Given>, keys: &[String], looks: Looks) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let traces = folder.path().join("traces");
        std::fs::create_dir(&traces).unwrap();
        let trace = traces.join("clicks.trace.safetensors");
        if let Some(given) = plan {
            std::fs::write(traces.join(&given.name), plan_of(given)).unwrap();
        }
        keys.iter().for_each(|name| write_key(&traces, name));
        Self { folder, looks, trace }
    }

    /// With the trace in it.
    pub fn traces(&self) -> &Path {
        self.trace.parent().unwrap()
    }

    /// A folder for that, made now.
    pub fn room(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }
}

/// The same key in every window, which nobody but its owner reads.
fn write_key(folder: &Path, name: &str) {
    let path = folder.join(format!("{}.key.json", name.to_lowercase()));
    let key = loka_core::review::SecretKey::new(name, &[name.len() as u8; 32]).unwrap();
    std::fs::write(&path, key.to_json()).unwrap();
    #[cfg(unix)]
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

/// Of the sample, by the command line, once.
fn rows() -> &'static [u8] {
    static ROWS: OnceLock<Vec<u8>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let (trace, rows) = (sample(), folder.path().join("r.results.parquet"));
        run_in(folder.path(), ["probe".as_ref(), trace.as_os_str(), "--out".as_ref(), rows.as_os_str()]).done();
        std::fs::read(&rows).unwrap()
    })
}

/// By the command line, from those rows.
fn plan_of(given: &Given) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let [from, plan] = ["r.results.parquet", "p.plan.json"].map(|name| folder.path().join(name));
    std::fs::write(&from, rows()).unwrap();
    let fixed = ["plan".as_ref(), from.as_os_str(), "--out".as_ref(), plan.as_os_str()];
    run_in(folder.path(), fixed.into_iter().chain(given.arguments.iter().map(OsStr::new))).done();
    std::fs::read(plan).unwrap()
}
