// SPDX-License-Identifier: GPL-2.0-only
//! Fingerprints as Parquet, a row per page, so that any SQL engine can ask
//! questions of several hosts' files at once.

use crate::{Error, Page, Result};
use parquet::basic::Encoding;
use parquet::column::reader::get_typed_column_reader;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use std::collections::HashMap;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::NamedTempFile;

const SCHEMA: &str = "message pages {
    REQUIRED BYTE_ARRAY tenant (UTF8);
    REQUIRED BYTE_ARRAY source (UTF8);
    OPTIONAL INT32 node (UINT_32);
    REQUIRED INT32 nice;
    REQUIRED INT64 address (UINT_64);
    REQUIRED INT64 fingerprint (UINT_64);
    REQUIRED BOOLEAN is_zero;
}";

/// Rows kept in memory before they are written as one group.
const GROUP: usize = 1 << 20;

/// Whose pages they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Label {
    /// Name of the virtual machine, container, service or program.
    pub tenant: String,
    /// What was read: `pid 123`, or a file.
    pub source: String,
    /// The node it belongs to, where that is known.
    pub node: Option<u32>,
    /// Nice value.
    pub nice: i32,
}

/// A file that is being written; it gets its name when it is complete.
pub struct TableWriter {
    path: PathBuf,
    /// Readable by its owner only: fingerprints tell who holds what. Under a name
    /// that nobody can foresee; removed unless it gets its own.
    partial: NamedTempFile,
    writer: SerializedFileWriter<File>,
    label: Label,
    pages: Vec<Page>,
}

impl TableWriter {
    /// Creates `path`, when it is complete; what is there until then stays so long.
    /// Only a regular file is replaced: who names a device or a link means what is
    /// behind it.
    pub fn create(path: &Path) -> Result<Self> {
        check_replaceable(path)?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let partial = NamedTempFile::new_in(directory.unwrap_or(Path::new(".")))
            .map_err(|error| unwritable(path, error.into()))?;
        let properties = WriterProperties::builder()
            .set_statistics_enabled(EnabledStatistics::None)
            // Fingerprints repeat too seldom, and addresses never.
            .set_column_dictionary_enabled(ColumnPath::from("fingerprint"), false)
            .set_column_dictionary_enabled(ColumnPath::from("address"), false)
            .set_column_encoding(ColumnPath::from("address"), Encoding::DELTA_BINARY_PACKED)
            .build();
        let start = || {
            let schema = Arc::new(parse_message_type(SCHEMA)?);
            SerializedFileWriter::new(partial.reopen()?, schema, Arc::new(properties))
        };
        let writer = start().map_err(|error| unwritable(path, error))?;
        Ok(Self { path: path.to_owned(), partial, writer, label: Label::default(), pages: Vec::new() })
    }

    /// From now on pages are those of `label`.
    pub fn set_label(&mut self, label: Label) -> Result<()> {
        self.write_group()?;
        self.label = label;
        Ok(())
    }

    /// Adds a row for each of `pages`.
    pub fn add(&mut self, pages: &[Page]) -> Result<()> {
        self.pages.extend_from_slice(pages);
        if self.pages.len() >= GROUP { self.write_group() } else { Ok(()) }
    }

    /// Writes what is left, and gives the file its name.
    pub fn finish(mut self) -> Result<()> {
        self.write_group()?;
        let Self { path, partial, writer, .. } = self;
        writer.close().map_err(|error| unwritable(&path, error))?;
        check_replaceable(&path)?;
        partial.persist(&path).map_err(|error| unwritable(&path, error.error.into()))?;
        Ok(())
    }

    fn write_group(&mut self) -> Result<()> {
        if !self.pages.is_empty() {
            let written = write_group(&mut self.writer, &self.label, &self.pages);
            written.map_err(|error| unwritable(&self.path, error))?;
            self.pages.clear();
        }
        Ok(())
    }
}

/// The crate parquet takes some damaged files for its own mistake, and panics.
/// What was half done then is not used any more.
fn without_panic<T>(
    read: impl FnOnce() -> std::result::Result<T, ParquetError>,
) -> std::result::Result<T, ParquetError> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(ParquetError::General("it is damaged".into())))
}

fn check_replaceable(path: &Path) -> Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(there) if !there.is_file() => Err(Error::Unwritable {
            path: path.to_owned(),
            source: "it is no regular file: choose another name".into(),
        }),
        // What cannot be looked at cannot be replaced, either: that says why.
        _ => Ok(()),
    }
}

fn unwritable(path: &Path, error: ParquetError) -> Error {
    Error::Unwritable { path: path.to_owned(), source: Box::new(error) }
}

/// One group of rows, all of one label.
fn write_group(
    writer: &mut SerializedFileWriter<File>,
    label: &Label,
    pages: &[Page],
) -> std::result::Result<(), ParquetError> {
    let text = |text: &str| vec![ByteArray::from(text); pages.len()];
    let words = |of: fn(&Page) -> u64| -> Vec<i64> { pages.iter().map(|page| signed(of(page))).collect() };
    let mut group = writer.next_row_group()?;
    let mut number = 0;
    while let Some(mut column) = group.next_column()? {
        match (number, column.untyped()) {
            (0, ColumnWriter::ByteArrayColumnWriter(w)) => w.write_batch(&text(&label.tenant), None, None)?,
            (1, ColumnWriter::ByteArrayColumnWriter(w)) => w.write_batch(&text(&label.source), None, None)?,
            (2, ColumnWriter::Int32ColumnWriter(w)) => {
                let node = label.node.and_then(|node| i32::try_from(node).ok());
                let levels = vec![i16::from(node.is_some()); pages.len()];
                w.write_batch(&node.map_or(Vec::new(), |node| vec![node; pages.len()]), Some(&levels), None)?
            }
            (3, ColumnWriter::Int32ColumnWriter(w)) => {
                w.write_batch(&vec![label.nice; pages.len()], None, None)?
            }
            (4, ColumnWriter::Int64ColumnWriter(w)) => {
                w.write_batch(&words(|page| page.address), None, None)?
            }
            (5, ColumnWriter::Int64ColumnWriter(w)) => {
                w.write_batch(&words(|page| page.fingerprint), None, None)?
            }
            (_, ColumnWriter::BoolColumnWriter(w)) => {
                let zero: Vec<bool> = pages.iter().map(|page| page.is_zero).collect();
                w.write_batch(&zero, None, None)?
            }
            _ => return Err(ParquetError::General("the schema has another column".into())),
        };
        column.close()?;
        number += 1;
    }
    group.close()?;
    Ok(())
}

/// Parquet's 64-bit columns are signed; the schema says how they are meant.
fn signed(word: u64) -> i64 {
    i64::from_ne_bytes(word.to_ne_bytes())
}

fn unsigned(word: i64) -> u64 {
    u64::from_ne_bytes(word.to_ne_bytes())
}

/// A file that is being read, made by [`TableWriter`] or by an SQL engine from
/// such files.
pub struct TableReader {
    path: PathBuf,
    reader: SerializedFileReader<File>,
    next_group: usize,
    labels: Vec<Label>,
    known: HashMap<Label, u32>,
}

impl TableReader {
    /// Opens `path` when it is a Parquet file; `None` when it is something else.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        use std::os::unix::fs::FileExt;
        let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let mut magic = [0; 4];
        // A directory cannot be read; whoever tries next says so.
        if file.read_at(&mut magic, 0).is_err() || magic != *b"PAR1" {
            return Ok(None);
        }
        let reader =
            without_panic(|| SerializedFileReader::new(file)).map_err(|error| Error::WrongContent {
                path: path.to_owned(),
                problem: format!("is a damaged Parquet file ({error})"),
            })?;
        Ok(Some(Self {
            path: path.to_owned(),
            reader,
            next_group: 0,
            labels: Vec::new(),
            known: HashMap::new(),
        }))
    }

    /// All rows of the file.
    #[must_use]
    pub fn rows(&self) -> u64 {
        u64::try_from(self.reader.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// Whose pages there were so far.
    #[must_use]
    pub fn labels(&self) -> &[Label] {
        &self.labels
    }

    /// The next pages, with the index of their label; `None` at the end.
    pub fn next_batch(&mut self) -> Result<Option<Vec<(u32, Page)>>> {
        if self.next_group == self.reader.num_row_groups() {
            return Ok(None);
        }
        let group = self.next_group;
        let rows = without_panic(|| self.read_group(group)).map_err(|error| Error::WrongContent {
            path: self.path.clone(),
            problem: format!("is not a file of `nuksm estimate --dump` ({error})"),
        })?;
        self.next_group += 1;
        Ok(Some(rows))
    }

    fn read_group(&mut self, group: usize) -> std::result::Result<Vec<(u32, Page)>, ParquetError> {
        let columns = self.reader.get_row_group(group)?;
        let group = columns.as_ref();
        let tenants = required(column::<ByteArrayType>(group, "tenant")?, "tenant")?;
        let sources = required(column::<ByteArrayType>(group, "source")?, "source")?;
        let (nodes, levels) = column::<Int32Type>(group, "node")?;
        let nices = required(column::<Int32Type>(group, "nice")?, "nice")?;
        let addresses = required(column::<Int64Type>(group, "address")?, "address")?;
        let fingerprints = required(column::<Int64Type>(group, "fingerprint")?, "fingerprint")?;
        let zeros = required(column::<BoolType>(group, "is_zero")?, "is_zero")?;
        drop(columns);

        let mut nodes = nodes.into_iter();
        let mut rows = Vec::with_capacity(tenants.len());
        let mut last = None::<(usize, Option<u32>, u32)>;
        for row in 0..tenants.len() {
            // A column that must have values has no levels.
            let has_node = levels.get(row).is_none_or(|&level| level > 0);
            let node = if has_node { nodes.next().and_then(|node| u32::try_from(node).ok()) } else { None };
            let tenant = match last {
                Some((before, its_node, tenant))
                    if tenants[before] == tenants[row]
                        && sources[before] == sources[row]
                        && (its_node, nices[before]) == (node, nices[row]) =>
                {
                    tenant
                }
                _ => self.tenant(Label {
                    tenant: tenants[row].as_utf8()?.to_owned(),
                    source: sources[row].as_utf8()?.to_owned(),
                    node,
                    nice: nices[row],
                }),
            };
            last = Some((row, node, tenant));
            let page = Page {
                address: unsigned(addresses[row]),
                fingerprint: unsigned(fingerprints[row]),
                is_zero: zeros[row],
                frame: None,
                is_shared: false,
            };
            rows.push((tenant, page));
        }
        Ok(rows)
    }

    fn tenant(&mut self, label: Label) -> u32 {
        *self.known.entry(label).or_insert_with_key(|label| {
            self.labels.push(label.clone());
            u32::try_from(self.labels.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

/// A column's values and, where they may be missing, its definition levels.
type Column<T> = (Vec<<T as DataType>::T>, Vec<i16>);

fn column<T: DataType>(
    group: &dyn RowGroupReader,
    name: &str,
) -> std::result::Result<Column<T>, ParquetError> {
    let bad = |problem: &str| ParquetError::General(format!("column {name:?} {problem}"));
    let schema = group.metadata().schema_descr();
    let number = (0..schema.num_columns())
        .find(|&number| schema.column(number).name() == name)
        .ok_or_else(|| bad("is missing"))?;
    if schema.column(number).physical_type() != T::get_physical_type() {
        return Err(bad("is of another type"));
    }
    let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
    let mut reader = get_typed_column_reader::<T>(group.get_column_reader(number)?);
    let (mut values, mut levels) = (Vec::with_capacity(rows), Vec::new());
    while reader.read_records(rows, Some(&mut levels), None, &mut values)?.0 > 0 {}
    Ok((values, levels))
}

/// The values of a column in which none may be missing.
fn required<T>(
    (values, levels): (Vec<T>, Vec<i16>),
    name: &str,
) -> std::result::Result<Vec<T>, ParquetError> {
    if levels.contains(&0) {
        return Err(ParquetError::General(format!("column {name:?} has no value in some rows")));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn label(tenant: &str, node: Option<u32>) -> Label {
        Label { tenant: tenant.into(), source: format!("pid of {tenant}"), node, nice: -5 }
    }

    fn page(number: u64) -> Page {
        // Fingerprints above 2^63 as well.
        let fingerprint = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Page { address: number * 4096, fingerprint, is_zero: number % 3 == 0, frame: None, is_shared: false }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pages.parquet");
        let mut writer = TableWriter::create(&path).unwrap();
        let many: Vec<Page> = (0..GROUP as u64 + 10).map(page).collect();
        writer.set_label(label("web", Some(1))).unwrap();
        many.chunks(512).for_each(|pages| writer.add(pages).unwrap());
        writer.set_label(label("nothing", Some(0))).unwrap();
        writer.set_label(label("db", None)).unwrap();
        writer.add(&[page(7)]).unwrap();
        writer.finish().unwrap();

        let mut reader = TableReader::open(&path).unwrap().unwrap();
        let mut rows = Vec::new();
        while let Some(batch) = reader.next_batch().unwrap() {
            rows.extend(batch);
        }
        assert_eq!(reader.labels(), [label("web", Some(1)), label("db", None)]);
        assert_eq!(rows.len() as u64, reader.rows());
        assert_eq!(rows.pop(), Some((1, page(7))));
        assert!(rows.into_iter().eq(many.into_iter().map(|page| (0, page))));
        let names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["pages.parquet"]);
    }

    #[test]
    fn nobody_else_reads_it_and_no_link_is_followed_or_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (path, victim) = (dir.path().join("pages.parquet"), dir.path().join("victim"));
        fs::write(&victim, "as it was").unwrap();
        symlink(&victim, dir.path().join("pages.parquet.partial")).unwrap();
        let link = dir.path().join("link");
        symlink(&victim, &link).unwrap();
        for other in [link.as_path(), dir.path()] {
            let Err(error) = TableWriter::create(other) else { panic!("{other:?} was replaced") };
            let why = std::error::Error::source(&error).unwrap().to_string();
            assert_eq!(why, "it is no regular file: choose another name");
        }
        let mut late = TableWriter::create(&path).unwrap();
        late.add(&[page(1)]).unwrap();
        symlink(&victim, &path).unwrap();
        assert!(late.finish().is_err(), "somebody made a link meanwhile");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "an older one").unwrap();
        let mut writer = TableWriter::create(&path).unwrap();
        writer.add(&[page(1)]).unwrap();
        writer.finish().unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
        let file = fs::symlink_metadata(&path).unwrap();
        assert!(file.is_file(), "{file:?}");
        assert_eq!(file.mode() & 0o777, 0o600);
    }

    #[test]
    fn what_is_not_finished_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = TableWriter::create(&dir.path().join("pages.parquet")).unwrap();
        writer.add(&[page(1)]).unwrap();
        drop(writer);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let Err(error) = TableWriter::create(Path::new("/nonexistent/pages.parquet")) else {
            panic!("a file in no directory");
        };
        assert_eq!(error.to_string(), "cannot write /nonexistent/pages.parquet");
    }

    #[test]
    fn a_file_damaged_anywhere_is_an_error_at_the_most() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pages.parquet");
        let mut writer = TableWriter::create(&path).unwrap();
        writer.set_label(label("web", Some(1))).unwrap();
        writer.add(&(0..9).map(page).collect::<Vec<_>>()).unwrap();
        writer.finish().unwrap();
        let whole = fs::read(&path).unwrap();
        let mut refused = 0;
        for at in 4..whole.len() {
            for other in [0x00, 0xff, whole[at] ^ 0x10] {
                let mut damaged = whole.clone();
                damaged[at] = other;
                fs::write(&path, damaged).unwrap();
                let mut reader = match TableReader::open(&path) {
                    Ok(reader) => reader.unwrap(),
                    Err(_) => continue,
                };
                // Some damage cannot be told from other pages.
                while reader.next_batch().inspect_err(|_| refused += 1).is_ok_and(|rows| rows.is_some()) {}
            }
        }
        assert!(refused > 0);
    }

    #[test]
    fn other_files_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, [0; 4096]).unwrap();
        assert!(TableReader::open(&path).unwrap().is_none());
        fs::write(&path, b"PAR1 and no more").unwrap();
        let Err(error) = TableReader::open(&path) else { panic!("a damaged file") };
        assert!(error.to_string().contains("is a damaged Parquet file"), "{error}");

        let schema = Arc::new(parse_message_type("message other { REQUIRED INT32 tenant; }").unwrap());
        let mut writer =
            SerializedFileWriter::new(File::create(&path).unwrap(), schema, Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&[1], None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        let error = TableReader::open(&path).unwrap().unwrap().next_batch().unwrap_err().to_string();
        assert!(error.contains("column \"tenant\" is of another type"), "{error}");
    }
}
