//! Takes a file's bytes or the shards of one run; gives the manifest, which sites are usable and why
//! not, and on demand one site's statistics.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
};

use sha2::{Digest as _, Sha256};

use super::{
    Series, SiteStats, TraceData,
    coverage::Coverage,
    digest::{Digesting, hex},
    error::{Fault, TraceCause, TraceError},
    extremes::Extremes,
    header::{self, Bytes, Tensors},
    manifest,
    merge::{self, Joined},
    ranks::RankExtremes,
    read,
    structure::{self, Expected, SiteOrder},
};
use crate::model::{FileMagic, Manifest, Site, SiteId};

/// A site as the trace lists it.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteEntry {
    pub site: Site,
    /// Why the site cannot be used. From structure alone: its data may still turn out to be bad.
    pub problem: Option<String>,
    pub coverage: Coverage,
}

/// An opened trace: one file, or the shards of one run. Cheap to clone and to send between threads.
#[derive(Clone)]
pub struct Trace(Arc<Inner>);

struct Inner {
    name: String,
    file: String,
    manifest: Manifest,
    sites: Vec<SiteEntry>,
    faults: Vec<Option<TraceError>>,
    index: BTreeMap<SiteId, usize>,
    source: Source,
    digest: OnceLock<String>,
}

pub(super) enum Source {
    File {
        bytes: Bytes,
        tensors: Tensors,
    },
    /// In rank order; sites are merged when they are asked for. Beside them the extremes of ranks that recorded nothing
    /// else.
    Shards(Vec<Trace>, Vec<Extremes>),
}

impl Trace {
    /// What tells the trace from others before its digest, which takes the whole file, is known: of its length and its
    /// header, which has every tensor's place. SHA-256.
    pub fn stamp(&self) -> String {
        let hashed = match self.source() {
            Source::File { bytes, .. } => {
                let file = (**bytes).as_ref();
                let header = file.first_chunk().map_or(0, |length| u64::from_le_bytes(*length));
                let end = usize::try_from(header).unwrap_or(usize::MAX).saturating_add(8).min(file.len());
                Sha256::new().chain_update((file.len() as u64).to_le_bytes()).chain_update(&file[..end])
            }
            Source::Shards(shards, _) => {
                shards.iter().fold(Sha256::new(), |hasher, shard| hasher.chain_update(shard.stamp()))
            }
        };
        hex(&hashed.finalize())
    }

    /// A trace from a file's bytes, owned or shared; `name` stands for the file in errors. Checks structure only.
    /// Refuses a shard whose weights another has.
    pub fn from_bytes(name: &str, bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self, TraceError> {
        Self::from_container(name, name, Box::new(bytes))?.with_weights()
    }

    /// Itself, unless it is a shard whose weights another has.
    pub(super) fn with_weights(self) -> Result<Self, TraceError> {
        match self.weights_elsewhere() {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }

    /// Why it has no weights; `None`: it has.
    pub(super) fn weights_elsewhere(&self) -> Option<TraceError> {
        Some(Fault::from(manifest::weights_elsewhere(&self.manifest().run)?).in_file(self.file()))
    }

    /// A trace in memory, as if `data` had been written and opened again.
    pub fn from_data(name: &str, data: &TraceData) -> Result<Self, TraceError> {
        Self::from_bytes(name, data.to_bytes().map_err(|fault| fault.in_file(name))?)
    }

    /// `file` is what errors show, `name` what windows and tables do.
    pub(super) fn from_container(name: &str, file: &str, bytes: Bytes) -> Result<Self, TraceError> {
        let (manifest, tensors) = open((*bytes).as_ref()).map_err(|fault| fault.in_file(file))?;
        let order = SiteOrder::new(&manifest.sites);
        let has_weights = manifest::weights_elsewhere(&manifest.run).is_none();
        let expected = Expected { num_probs: manifest.quantile_probs.len(), has_weights };
        let check = |site| structure::check(site, &order, &tensors, expected).err().map(|fault| fault.in_file(file));
        let faults: Vec<Option<TraceError>> = manifest.sites.iter().map(check).collect();
        let entry = |(site, fault): (&Site, &Option<TraceError>)| SiteEntry {
            site: site.clone(),
            problem: fault.as_ref().map(TraceError::cause),
            coverage: Coverage::of(&site.id, &tensors),
        };
        let sites = manifest.sites.iter().zip(&faults).map(entry).collect();
        Ok(Self::new(name, file, Joined { manifest, sites, faults }, Source::File { bytes, tensors }))
    }

    /// The shards of one run as one trace.
    pub(super) fn from_shards(name: &str, file: &str, shards: Vec<Self>) -> Result<Self, TraceError> {
        Self::from_shards_beside(name, file, shards, Vec::new())
    }

    /// The same with what is known of ranks that recorded nothing else; of another run or step it says nothing.
    pub(super) fn from_shards_beside(
        name: &str,
        file: &str,
        shards: Vec<Self>,
        extremes: Vec<Extremes>,
    ) -> Result<Self, TraceError> {
        let shards = merge::in_rank_order(shards);
        let mut joined = merge::join(&shards)?;
        let (mut own, others): (Vec<_>, Vec<_>) = extremes
            .into_iter()
            .partition(|of| of.run.id == joined.manifest.run.id && of.run.step == joined.manifest.run.step);
        own.sort_by_key(|of| of.run.rank);
        merge::note_other_extremes(&mut joined.manifest, &others);
        Ok(Self::new(name, file, joined, Source::Shards(shards, own)))
    }

    fn new(name: &str, file: &str, joined: Joined, source: Source) -> Self {
        let Joined { manifest, sites, faults } = joined;
        let index = manifest.sites.iter().enumerate().map(|(i, site)| (site.id.clone(), i)).collect();
        let (name, file) = (name.to_owned(), file.to_owned());
        Self(Arc::new(Inner { name, file, manifest, sites, faults, index, source, digest: OnceLock::new() }))
    }

    /// The file's or the folder's name, without its path.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The path as it was given, or the name of the bytes: what errors end with.
    pub fn file(&self) -> &str {
        &self.0.file
    }

    pub fn manifest(&self) -> &Manifest {
        &self.0.manifest
    }

    /// In forward order, the unusable ones too.
    pub fn sites(&self) -> &[SiteEntry] {
        &self.0.sites
    }

    pub fn site(&self, id: &SiteId) -> Option<&SiteEntry> {
        self.0.index.get(id).map(|i| &self.0.sites[*i])
    }

    /// What is wrong with the structure of the site at that place.
    pub(super) fn site_fault(&self, at: usize) -> Option<TraceError> {
        self.0.faults.get(at).cloned().flatten()
    }

    /// The site, if nothing is wrong with its structure.
    fn usable(&self, id: &SiteId) -> Result<&Site, TraceError> {
        let Some(at) = self.0.index.get(id).copied() else {
            return Err(Fault::from(TraceCause::NoSuchSite(id.clone())).in_file(self.file()));
        };
        self.site_fault(at).map_or(Ok(&self.0.sites[at].site), Err)
    }

    /// Reads the site's data and checks every value of it. Not cached: a site may hold 100 MB.
    pub fn site_stats(&self, id: &SiteId) -> Result<SiteStats, TraceError> {
        let site = self.usable(id)?;
        match &self.0.source {
            Source::File { bytes, tensors } => {
                read::read_site(site, tensors, (**bytes).as_ref()).map_err(|fault| fault.in_file(self.file()))
            }
            Source::Shards(shards, _) => {
                let stats = merge::merge_site(shards, site, self.file())?;
                Ok(SiteStats { ranks: self.site_ranks(id)?, ..stats })
            }
        }
    }

    /// Of a shard whose weights another has: all but the weight, which has no value.
    pub(super) fn stats_without_weight(&self, id: &SiteId) -> Result<SiteStats, TraceError> {
        let Source::File { bytes, tensors } = &self.0.source else { return self.site_stats(id) };
        read::read_without_weight(self.usable(id)?, tensors, (**bytes).as_ref())
            .map_err(|fault| fault.in_file(self.file()))
    }

    /// The largest values of each rank at a site, where the trace is of several. Small beside its statistics.
    pub fn site_ranks(&self, id: &SiteId) -> Result<Option<RankExtremes>, TraceError> {
        let site = self.usable(id)?;
        match &self.0.source {
            Source::File { bytes, tensors } => {
                read::read_ranks(site, tensors, (**bytes).as_ref()).map_err(|fault| fault.in_file(self.file()))
            }
            Source::Shards(shards, extremes) => {
                let mut all = Vec::new();
                for shard in shards {
                    all.extend(shard.own_ranks(site)?);
                }
                for of in extremes {
                    all.extend(of.site(site)?);
                }
                Ok(RankExtremes::joined(&all))
            }
        }
    }

    /// As one of several shards: of those that were merged into it, or its own.
    fn own_ranks(&self, site: &Site) -> Result<Option<RankExtremes>, TraceError> {
        if let Some(kept) = self.site_ranks(&site.id)? {
            return Ok(Some(kept));
        }
        match &self.0.source {
            Source::File { bytes, tensors } if !merge::is_merged(self.manifest()) => {
                let (rank, file) = (self.manifest().run.rank, (**bytes).as_ref());
                read::read_extremes(site, rank, tensors, file).map_err(|fault| fault.in_file(self.file()))
            }
            // Merged by a version that kept none.
            _ => Ok(None),
        }
    }

    /// The site's series alone: small beside its statistics.
    pub fn site_series(&self, id: &SiteId) -> Result<Vec<Series>, TraceError> {
        let Some(i) = self.0.index.get(id) else {
            return Err(Fault::from(TraceCause::NoSuchSite(id.clone())).in_file(self.file()));
        };
        if let Some(error) = &self.0.faults[*i] {
            return Err(error.clone());
        }
        match &self.0.source {
            Source::File { bytes, tensors } => read::read_series(&self.0.sites[*i].site, tensors, (**bytes).as_ref())
                .map_err(|fault| fault.in_file(self.file())),
            Source::Shards(shards, _) => {
                let all = shards.iter().map(|shard| shard.site_series(id)).collect::<Result<Vec<_>, _>>()?;
                Ok(merge::joined_series(&all))
            }
        }
    }

    /// `sha256:` and hex of the file's bytes; of several shards, of their digests one after the other
    /// in rank order. Reads the whole file when first asked (about 1.5 s a GB).
    pub fn digest(&self) -> String {
        let mut digesting = Digesting::new(self.clone());
        loop {
            if let Some(digest) = digesting.read(usize::MAX) {
                return digest;
            }
        }
    }

    /// Empty until it was computed.
    pub(super) fn known_digest(&self) -> &OnceLock<String> {
        &self.0.digest
    }

    pub(super) fn source(&self) -> &Source {
        &self.0.source
    }

    /// Reads every site; gives those that cannot be used, with the reason, in forward order.
    pub fn check_all(&self) -> Vec<(SiteId, String)> {
        let check = |entry: &SiteEntry| {
            let error = self.site_stats(&entry.site.id).err()?;
            Some((entry.site.id.clone(), self.problem_text(&error)))
        };
        self.sites().iter().filter_map(check).collect()
    }

    /// The cause, and the shard when it is one shard's.
    pub(super) fn problem_text(&self, error: &TraceError) -> String {
        if error.file() == self.file() { error.cause() } else { merge::problem_in_shard(error) }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("file", &self.0.file).field("sites", &self.0.sites.len()).finish_non_exhaustive()
    }
}

fn open(file: &[u8]) -> Result<(Manifest, Tensors), Fault> {
    let header = header::parse(file).map_err(|fault| another_file(file).unwrap_or(fault))?;
    let text = header.metadata.get("loka.trace").ok_or(TraceCause::NoManifest)?;
    Ok((manifest::parse(text)?, header.tensors))
}

/// A file of another program has no header whose faults would help anyone.
fn another_file(file: &[u8]) -> Option<Fault> {
    match FileMagic::of(file)? {
        // What is wrong with the header is to the point; of an empty file, that it has none.
        FileMagic::Trace | FileMagic::Safetensors | FileMagic::Empty => None,
        other => Some(TraceCause::AnotherFile(other).into()),
    }
}
