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
        }
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
        let part = begun.plan.read(&self.rest[..whole], 0, whole);
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
        self.begun.as_ref().map_or(0, |begun| {
            let tally = &begun.order.tally;
            tally.lost.max(tally.lost_samples)
        })
    }
}

fn damage(end: &End) -> Option<String> {
    match end {
        End::More => None,
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
