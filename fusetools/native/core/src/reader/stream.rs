//! Reads what perf writes to a pipe, as it comes.

use super::*;

/// Maximum size of a head. perf's header, names and formats are far smaller: a larger head is of no recording.
const MOST_HEAD: usize = 256 << 20;

/// Reader of a recording that comes piece by piece. It yields events in time order, and keeps only what is incomplete.
pub struct Stream {
    catalogue: Vec<Meaning>,
    /// Bytes not read yet: the head, later less than a record.
    rest: Vec<u8>,
    begun: Option<Begun>,
    spool: Option<Spool>,
}

/// Records as perf wrote them: those that are not complete yet, and a few that stay.
#[derive(Default)]
struct Spool {
    new: Vec<u8>,
    /// Samples by their time.
    kept: Vec<(u64, Box<[u8]>)>,
}

struct Begun {
    reader: Reader,
    plan: ScanPlan,
    order: Order<Vec<Batch>>,
    join: Join,
    compat: Compat,
}

impl Stream {
    pub fn new(catalogue: Vec<Meaning>) -> Stream {
        Stream {
            catalogue,
            rest: Vec::new(),
            begun: None,
            spool: None,
        }
    }

    /// Keep the records of samples, until `retain`.
    pub fn keep_records(&mut self) {
        self.spool.get_or_insert_default();
    }

    /// Discard the samples up to a time, except those of these times.
    pub fn retain(&mut self, upto: u64, times: &FxHashSet<u64>) {
        let (Some(begun), Some(spool)) = (&self.begun, &mut self.spool) else {
            return;
        };
        spool.kept.retain(|(time, _)| times.contains(time));
        let mut later = Vec::new();
        let mut at = 0;
        while let Ok(header) = Header::at(&spool.new, at) {
            let bytes = &spool.new[at..at + header.size];
            let extra = header.extra(&spool.new, at);
            at = file::range_end(at, header.size, extra).unwrap_or(usize::MAX);
            if header.kind != record::SAMPLE {
                continue;
            }
            let attr = begun.plan.ids.of_sample(bytes);
            let attr = attr.and_then(|event| begun.reader.parts.attrs.get(event));
            let Some(time) = attr.and_then(|attr| u64_at(bytes, attr.layout.time)) else {
                continue;
            };
            if time > upto {
                later.extend_from_slice(bytes);
            } else if times.contains(&time) {
                spool.kept.push((time, bytes.into()));
            }
        }
        spool.new = later;
    }

    /// Return a recording of the samples that `retain` kept. None: there are none.
    pub fn held(&self) -> Option<Vec<u8>> {
        let (begun, spool) = (self.begun.as_ref()?, self.spool.as_ref()?);
        let mut kept: Vec<&(u64, Box<[u8]>)> = spool.kept.iter().collect();
        kept.first()?;
        kept.sort_by_key(|(time, _)| *time);
        let records = kept.iter().flat_map(|(_, bytes)| bytes.iter());
        Some(begun.reader.bytes.iter().chain(records).copied().collect())
    }

    /// Add the next bytes. Error: they are not perf's stream, or damaged.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.rest.extend_from_slice(bytes);
        if self.begun.is_none() {
            let Some(len) = head(&self.rest)? else {
                return match self.rest.len() {
                    0..MOST_HEAD => Ok(()),
                    len => Err(Error::damaged("its head has no end", len)),
                };
            };
            let records = self.rest.split_off(len);
            let reader = Reader::from_bytes(std::mem::replace(&mut self.rest, records))?;
            let plan = ScanPlan::new(&reader, &self.catalogue, None);
            let mut order = Order::new(reader.events.len(), Vec::new());
            order.stacked.clone_from(&plan.stacked);
            self.begun = Some(Begun {
                plan,
                order,
                join: Join::new(&self.catalogue),
                compat: Compat::new(&self.catalogue, reader.arch().as_deref()),
                reader,
            });
        }
        let Some(begun) = &mut self.begun else {
            return Ok(());
        };
        let whole = whole_records(&self.rest);
        let part = begun.plan.read(View::whole(&self.rest[..whole]), 0, whole);
        if let Some(spool) = &mut self.spool {
            spool.new.extend_from_slice(&self.rest[..whole]);
        }
        let (next, damage) = (part.next, damage(&part.end));
        begun.order.add(part);
        if let Some(why) = damage {
            return Err(Error::damaged(why, next));
        }
        // No further bytes complete a record of size 0.
        if let Err(NoRecord::Size(size)) = Header::at(&self.rest, whole) {
            return Err(Error::damaged(format!("a record of {size} bytes"), whole));
        }
        self.rest.drain(..whole);
        Ok(())
    }

    /// Hand on everything up to a time (ns on the recording's clock): nothing older can follow.
    pub fn complete(&mut self, upto: u64) {
        if let Some(begun) = &mut self.begun {
            begun.order.hand(upto);
        }
    }

    /// Return the time up to which perf's own rounds show that nothing is missing, in ns on the recording's clock; 0 if
    /// unknown.
    pub fn by_rounds(&self) -> u64 {
        self.begun
            .as_ref()
            .map_or(0, |begun| begun.order.rounds.complete)
    }

    /// Return the batches that are complete by now.
    pub fn batches(&mut self) -> Vec<Batch> {
        let Some(begun) = &mut self.begun else {
            return Vec::new();
        };
        let mut batches = std::mem::take(&mut begun.order.sink);
        for batch in &mut batches {
            begun.join.number(batch);
            begun.compat.number(batch, &mut Vec::new());
        }
        batches
    }

    /// Return the head once it is complete: events and their formats, no records.
    pub fn head(&self) -> Option<&Reader> {
        self.begun.as_ref().map(|begun| &begun.reader)
    }

    /// Return the number of events that the kernel dropped so far.
    pub fn lost(&self) -> u64 {
        let begun = self.begun.as_ref();
        begun.map_or(0, |begun| begun.order.tally.lost())
    }
}

fn damage(end: &End) -> Option<String> {
    match end {
        End::More | End::Cut => None,
        End::Damaged(why) => Some(why.clone()),
        End::Compressed => Some("compressed records".into()),
    }
}

/// Return the offset of the first record after perf's head. None: it has not come yet.
fn head(bytes: &[u8]) -> Result<Option<usize>, Error> {
    let mut at = file::PIPE_HEADER;
    let Some(size) = u64_at(bytes, 8) else {
        return Ok(None);
    };
    if !bytes.starts_with(file::MAGIC) || size != at as u64 {
        let why = "it does not begin as what perf writes to a pipe".into();
        return Err(Error::NotPerfData { why });
    }
    loop {
        let header = match Header::at(bytes, at) {
            Ok(header) => header,
            Err(NoRecord::Short) => return Ok(None),
            Err(NoRecord::Size(_)) => return Ok(Some(at)),
        };
        if header.kind < record::USER
            || matches!(header.kind, record::FINISHED_ROUND | record::FINISHED_INIT)
        {
            return Ok(Some(at));
        }
        let end = file::range_end(at, header.size, header.extra(bytes, at));
        match end.filter(|&end| end <= bytes.len()) {
            Some(end) => at = end,
            None => return Ok(None),
        }
    }
}

/// Return the size of the whole records at the start.
fn whole_records(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Ok(header) = Header::at(bytes, at) {
        match file::range_end(at, header.size, header.extra(bytes, at)) {
            Some(end) if end <= bytes.len() => at = end,
            _ => break,
        }
    }
    at
}
