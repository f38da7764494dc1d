//! Values in as few bytes as they take. What is packed is named once, in a function that visits it: the
//! same one packs and unpacks, so that the two cannot come apart. The bytes never leave the process.

use weir_wire::Range32;

/// Bits of a number in each of its bytes; the eighth says that more follow.
const NUMBER_BITS: u32 = 7;

/// Visits values, to pack or to fill them.
pub(crate) trait Pack {
    fn num(&mut self, n: &mut u64);
    fn bytes(&mut self, bytes: &mut Vec<u8>);

    fn flag(&mut self, flag: &mut bool) {
        let mut n = u64::from(*flag);
        self.num(&mut n);
        *flag = n != 0;
    }

    fn flags<const N: usize>(&mut self, flags: [&mut bool; N]) {
        let mut n = 0;
        for (i, flag) in flags.iter().enumerate() {
            n |= u64::from(**flag) << i;
        }
        self.num(&mut n);
        for (i, flag) in flags.into_iter().enumerate() {
            *flag = n >> i & 1 != 0;
        }
    }

    /// A number that is smaller than 64 bits where it stands.
    fn small<T: Copy + Into<u64> + TryFrom<u64>>(&mut self, small: &mut T) {
        let mut n = (*small).into();
        self.num(&mut n);
        if let Ok(n) = T::try_from(n) {
            *small = n;
        }
    }

    fn size(&mut self, size: &mut usize) {
        let mut n = *size as u64;
        self.num(&mut n);
        *size = n as usize;
    }

    fn range(&mut self, range: &mut Range32) {
        let mut len = range.end.wrapping_sub(range.start);
        self.small(&mut range.start);
        self.small(&mut len);
        range.end = range.start.wrapping_add(len);
    }

    fn option<T: Default>(
        &mut self,
        option: &mut Option<T>,
        value: impl FnOnce(&mut Self, &mut T),
    ) {
        let mut is_some = option.is_some();
        self.flag(&mut is_some);
        match is_some {
            true => value(self, option.get_or_insert_default()),
            false => *option = None,
        }
    }

    fn list<T: Default>(&mut self, list: &mut Vec<T>, each: impl Fn(&mut Self, &mut T)) {
        let mut len = list.len();
        self.size(&mut len);
        list.resize_with(len, T::default);
        list.iter_mut().for_each(|item| each(self, item));
    }
}

/// Packs what it visits, and leaves it as it is.
#[derive(Default)]
pub(crate) struct Packer(pub(crate) Vec<u8>);

impl Pack for Packer {
    fn num(&mut self, n: &mut u64) {
        let mut left = *n;
        while left >> NUMBER_BITS != 0 {
            self.0.push(left as u8 | 1 << NUMBER_BITS);
            left >>= NUMBER_BITS;
        }
        self.0.push(left as u8);
    }

    fn bytes(&mut self, bytes: &mut Vec<u8>) {
        self.size(&mut bytes.len());
        self.0.extend_from_slice(bytes);
    }
}

/// Fills what it visits, in the order in which it was packed.
pub(crate) struct Unpacker<'a>(pub(crate) &'a [u8]);

impl Pack for Unpacker<'_> {
    fn num(&mut self, n: &mut u64) {
        *n = 0;
        let mut shift = 0;
        while let Some((byte, rest)) = self.0.split_first() {
            self.0 = rest;
            *n |= u64::from(byte & !(1 << NUMBER_BITS)) << shift;
            shift += NUMBER_BITS;
            if byte >> NUMBER_BITS == 0 {
                return;
            }
        }
    }

    fn bytes(&mut self, bytes: &mut Vec<u8>) {
        let mut len = 0;
        self.size(&mut len);
        let (these, rest) = self.0.split_at(len.min(self.0.len()));
        bytes.clear();
        bytes.extend_from_slice(these);
        self.0 = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type All = (u64, u16, usize, [bool; 3], Range32, Option<u64>, Vec<Option<u8>>, Vec<u8>);

    fn visit(pack: &mut impl Pack, all: &mut All) {
        pack.num(&mut all.0);
        pack.small(&mut all.1);
        pack.size(&mut all.2);
        pack.flags(all.3.each_mut());
        pack.range(&mut all.4);
        pack.option(&mut all.5, Pack::num);
        pack.list(&mut all.6, |pack, n| pack.option(n, Pack::small));
        pack.bytes(&mut all.7);
    }

    #[test]
    fn what_was_packed_is_there_again_whatever_stood_in_its_place() {
        let range = |start, end| Range32 { start, end };
        let all: [All; 3] = [
            (0, 0, 0, [false; 3], range(0, 0), None, Vec::new(), Vec::new()),
            (
                127,
                128,
                300,
                [true, false, true],
                range(3, 9),
                Some(1),
                vec![None, Some(7)],
                vec![1],
            ),
            (
                u64::MAX,
                u16::MAX,
                usize::MAX,
                [true; 3],
                range(u32::MAX, u32::MAX),
                Some(u64::MAX),
                vec![Some(255); 200],
                b"text".repeat(99),
            ),
        ];
        for one in &all {
            for other in &all {
                let (mut from, mut to) = (one.clone(), other.clone());
                let mut packer = Packer::default();
                visit(&mut packer, &mut from);
                assert_eq!(from, *one);
                let mut unpacker = Unpacker(&packer.0);
                visit(&mut unpacker, &mut to);
                assert_eq!((to, unpacker.0.len()), (one.clone(), 0));
            }
        }
    }
}
