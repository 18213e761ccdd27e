// SPDX-License-Identifier: GPL-2.0-only
//! Pages in files: raw memory images, and the `PT_LOAD` segments of ELF cores.

use crate::page::{BATCH, Page, page, page_bytes};
use crate::{Error, Result};
use elf::ElfStream;
use elf::abi::{ET_CORE, PT_LOAD};
use elf::endian::AnyEndian;
use nuksm_pagemap::page_size;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file that is being read.
#[derive(Debug)]
pub struct MemoryFile {
    path: PathBuf,
    file: File,
    /// What is left to be read, the next one last.
    segments: Vec<Segment>,
    buffer: Vec<u8>,
}

/// Memory that is in the file in one piece.
#[derive(Debug, Clone, Copy)]
struct Segment {
    address: u64,
    offset: u64,
    pages: u64,
}

/// Formats that look like a raw image and are none, by how they begin.
const OTHERS: [(&[u8], &str); 4] = [
    (b"KDUMP   ", "a compressed kernel dump: dump it as ELF (virsh dump --memory-only --format elf)"),
    (b"QEVM", "a saved QEMU state: dump the memory alone (virsh dump --memory-only --format elf)"),
    (b"LibvirtQemudSave", "a saved libvirt domain: dump its memory (virsh dump --memory-only --format elf)"),
    (b"QFI\xfb", "a disk image (qcow2), not memory"),
];

impl MemoryFile {
    /// Opens a raw image or an ELF core: what begins as ELF has to be a core.
    pub fn open(path: &Path) -> Result<Self> {
        let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
        let wrong = |problem: String| Error::WrongContent { path: path.to_owned(), problem };
        let file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(wrong("is no regular file".into()));
        }
        let mut magic = [0; 16];
        let got = file.read_at(&mut magic, 0).map_err(unreadable)?;
        let begins = |with: &[u8]| magic[..got].starts_with(with);
        if let Some((_, name)) = OTHERS.iter().find(|(magic, _)| begins(magic)) {
            return Err(wrong(format!("is {name}")));
        }
        let bytes = metadata.len();
        let mut segments = if begins(b"\x7fELF") {
            core_segments(&file, bytes).map_err(wrong)?
        } else if bytes == 0 || bytes % page_size() != 0 {
            let problem = format!(
                "is neither an ELF core nor a raw memory image: its {bytes} bytes are not whole pages of {} bytes",
                page_size()
            );
            return Err(wrong(problem));
        } else {
            vec![Segment { address: 0, offset: 0, pages: bytes / page_size() }]
        };
        segments.reverse();
        Ok(Self { path: path.to_owned(), file, segments, buffer: vec![0; BATCH * page_bytes()] })
    }

    /// Pages that are still to be read.
    #[must_use]
    pub fn pages_left(&self) -> u64 {
        self.segments.iter().map(|segment| segment.pages).fold(0, u64::saturating_add)
    }

    /// Reads the next pages into `pages`; false at the end.
    pub fn next_batch(&mut self, pages: &mut Vec<Page>) -> Result<bool> {
        pages.clear();
        let Some(segment) = self.segments.last_mut() else {
            return Ok(false);
        };
        let wanted = usize::try_from(segment.pages).unwrap_or(BATCH).min(BATCH);
        let buffer = &mut self.buffer[..wanted * page_bytes()];
        self.file
            .read_exact_at(buffer, segment.offset)
            .map_err(|source| Error::Unreadable { path: self.path.clone(), source })?;
        for bytes in buffer.chunks_exact(page_bytes()) {
            pages.push(page(segment.address, bytes));
            // A core may say that it ends where addresses do.
            segment.address = segment.address.wrapping_add(page_size());
            segment.offset += page_size();
            segment.pages -= 1;
        }
        if segment.pages == 0 {
            self.segments.pop();
        }
        Ok(true)
    }
}

/// The memory in a core of `bytes` bytes; part of a page at the end of a
/// segment is no page.
fn core_segments(file: &File, bytes: u64) -> std::result::Result<Vec<Segment>, String> {
    let elf = ElfStream::<AnyEndian, _>::open_stream(file)
        .map_err(|error| format!("is a damaged or truncated ELF file ({error})"))?;
    if elf.ehdr.e_type != ET_CORE {
        return Err("is an ELF file, but no core (gcore PID and virsh dump --memory-only make one)".into());
    }
    let loads = elf.segments().iter().filter(|header| header.p_type == PT_LOAD && header.p_filesz > 0);
    let mut segments = Vec::new();
    for header in loads {
        let end = header.p_offset.checked_add(header.p_filesz);
        if end.is_none_or(|end| end > bytes) {
            return Err(format!(
                "is truncated: a segment of {} bytes starts at byte {}, and the file has {bytes}",
                header.p_filesz, header.p_offset
            ));
        }
        // QEMU's dumps without paging know physical addresses only.
        let address = if header.p_vaddr == 0 { header.p_paddr } else { header.p_vaddr };
        let pages = header.p_filesz / page_size();
        if pages > 0 {
            segments.push(Segment { address, offset: header.p_offset, pages });
        }
    }
    if segments.is_empty() {
        return Err("is a core without memory: it has no PT_LOAD segment with content".into());
    }
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(content: &[u8]) -> Result<(tempfile::TempDir, MemoryFile)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory");
        std::fs::write(&path, content).unwrap();
        MemoryFile::open(&path).map(|file| (dir, file))
    }

    fn problem(content: &[u8]) -> String {
        open(content).unwrap_err().to_string()
    }

    fn read(content: &[u8]) -> Vec<(u64, bool)> {
        let (_dir, mut file) = open(content).unwrap();
        let (mut pages, mut all) = (Vec::new(), Vec::new());
        let expected = file.pages_left();
        while file.next_batch(&mut pages).unwrap() {
            all.extend(pages.iter().map(|page| (page.address, page.is_zero)));
        }
        assert_eq!(all.len() as u64, expected);
        all
    }

    fn pages(contents: &[u8]) -> Vec<u8> {
        contents.iter().flat_map(|&content| vec![content; page_bytes()]).collect()
    }

    /// A 64-bit little-endian ELF file of type `kind` with segments (type,
    /// virtual address, physical address, content).
    fn elf(kind: u16, segments: &[(u32, u64, u64, &[u8])]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        file.extend(kind.to_le_bytes());
        file.extend(62_u16.to_le_bytes());
        file.extend(1_u32.to_le_bytes());
        for value in [0_u64, 64, 0] {
            file.extend(value.to_le_bytes());
        }
        file.extend(0_u32.to_le_bytes());
        for value in [64, 56, u16::try_from(segments.len()).unwrap(), 64, 0, 0] {
            file.extend(value.to_le_bytes());
        }
        let mut offset = 64 + 56 * segments.len() as u64;
        for (kind, virtual_address, physical, content) in segments {
            file.extend(kind.to_le_bytes());
            file.extend(6_u32.to_le_bytes());
            let bytes = content.len() as u64;
            for value in [offset, *virtual_address, *physical, bytes, 2 * bytes, 4096] {
                file.extend(value.to_le_bytes());
            }
            offset += bytes;
        }
        for (.., content) in segments {
            file.extend_from_slice(content);
        }
        file
    }

    #[test]
    fn a_raw_image_is_read_from_its_beginning() {
        let mut contents = vec![1; 1000];
        contents[700] = 0;
        let seen = read(&pages(&contents));
        assert_eq!(seen.len(), 1000);
        assert_eq!(seen[700], (700 * page_size(), true));
        assert_eq!(seen.iter().filter(|(_, is_zero)| *is_zero).count(), 1);
    }

    #[test]
    fn a_core_is_read_by_its_segments() {
        let (two, one) = (pages(&[1, 0]), pages(&[2]));
        let mut odd = pages(&[3]);
        odd.extend([7; 100]);
        let note = pages(&[9]);
        let seen = read(&elf(
            4,
            &[
                (4, 0, 0, &note),
                (PT_LOAD, 0x7000_0000, 0, &two),
                (PT_LOAD, 0x9000_0000, 0, &[]),
                (PT_LOAD, 0, 0x10_0000, &one),
                (PT_LOAD, 0xa000_0000, 0, &odd),
            ],
        ));
        let expected = [
            (0x7000_0000, false),
            (0x7000_0000 + page_size(), true),
            (0x10_0000, false),
            (0xa000_0000, false),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_core_may_end_where_addresses_do() {
        let last = 0_u64.wrapping_sub(page_size());
        let seen = read(&elf(4, &[(PT_LOAD, last, 0, &pages(&[1, 0]))]));
        assert_eq!(seen, [(last, false), (0, true)]);
    }

    #[test]
    fn what_is_no_memory_says_what_it_is() {
        let image = pages(&[1, 2]);
        assert!(problem(&elf(2, &[])).contains("but no core"));
        assert!(problem(&elf(4, &[])).contains("core without memory"));
        let core = elf(4, &[(PT_LOAD, 0x1000, 0, &image)]);
        assert!(problem(&core[..core.len() - 1]).contains("is truncated: a segment of 8192 bytes"));
        assert!(problem(&core[..100]).contains("damaged or truncated ELF"));
        assert!(problem(&image[1..]).contains("8191 bytes are not whole pages"));
        assert!(problem(b"").contains("0 bytes are not whole pages"));
        let mut dump = pages(&[0]);
        dump[..8].copy_from_slice(b"KDUMP   ");
        assert!(problem(&dump).contains("dump it as ELF"));
        let missing = MemoryFile::open(Path::new("/nonexistent/memory")).unwrap_err();
        assert_eq!(missing.to_string(), "cannot read /nonexistent/memory");
        let directory = MemoryFile::open(Path::new("/")).unwrap_err();
        assert_eq!(directory.to_string(), "/: is no regular file");
    }
}
