//! From where the operators of well-known robots come. A robot that gives such a name and comes from elsewhere is
//! somebody else. The ranges are wide (all that an operator announces, clouds that anybody can rent included):
//! who is told to lie does, and not everybody who lies is told. With a database of networks their numbers decide.

use crate::agent::Operator;
use std::net::IpAddr;
use std::sync::LazyLock;
use weir_base::addr::Cidr;

struct Networks {
    operator: Operator,
    /// Numbers of autonomous systems.
    numbers: &'static [u32],
    ranges: &'static [&'static str],
}

const NETWORKS: &[Networks] = &[
    Networks {
        operator: Operator::Google,
        numbers: &[15_169, 19_527, 36_384, 36_492, 396_982],
        ranges: &[
            "8.8.4.0/24",
            "8.8.8.0/24",
            "34.0.0.0/8",
            "35.184.0.0/13",
            "35.192.0.0/11",
            "35.224.0.0/12",
            "64.233.160.0/19",
            "66.102.0.0/20",
            "66.249.64.0/19",
            "72.14.192.0/18",
            "74.125.0.0/16",
            "104.132.0.0/14",
            "104.154.0.0/15",
            "104.196.0.0/14",
            "107.167.160.0/19",
            "107.178.192.0/18",
            "108.59.80.0/20",
            "108.170.192.0/18",
            "108.177.0.0/17",
            "130.211.0.0/16",
            "136.112.0.0/12",
            "142.250.0.0/15",
            "146.148.0.0/17",
            "162.216.148.0/22",
            "162.222.176.0/21",
            "172.217.0.0/16",
            "172.253.0.0/16",
            "173.194.0.0/16",
            "173.255.112.0/20",
            "192.158.28.0/22",
            "192.178.0.0/15",
            "199.36.152.0/21",
            "207.223.160.0/20",
            "208.68.108.0/22",
            "208.81.188.0/22",
            "209.85.128.0/17",
            "216.58.192.0/19",
            "216.73.80.0/20",
            "216.239.32.0/19",
            "2001:4860::/32",
            "2404:6800::/32",
            "2404:f340::/32",
            "2600:1900::/28",
            "2605:ef80::/32",
            "2607:f8b0::/32",
            "2620:11a:a000::/40",
            "2800:3f0::/32",
            "2a00:1450::/32",
            "2c0f:fb50::/32",
        ],
    },
    Networks {
        operator: Operator::Microsoft,
        numbers: &[8_068, 8_069, 8_075],
        ranges: &[
            "4.128.0.0/9",
            "13.64.0.0/10",
            "20.0.0.0/8",
            "23.96.0.0/13",
            "40.64.0.0/10",
            "51.0.0.0/8",
            "52.96.0.0/11",
            "52.128.0.0/9",
            "64.4.0.0/18",
            "65.52.0.0/14",
            "68.18.0.0/15",
            "68.154.0.0/15",
            "68.218.0.0/15",
            "70.37.0.0/17",
            "74.160.0.0/11",
            "74.224.0.0/11",
            "102.133.0.0/16",
            "104.40.0.0/13",
            "104.146.0.0/15",
            "104.208.0.0/13",
            "111.221.16.0/20",
            "131.253.0.0/16",
            "132.245.0.0/16",
            "134.170.0.0/16",
            "135.149.0.0/16",
            "135.224.0.0/11",
            "137.116.0.0/14",
            "138.91.0.0/16",
            "139.217.0.0/16",
            "139.219.0.0/16",
            "157.54.0.0/15",
            "157.56.0.0/14",
            "168.61.0.0/16",
            "168.62.0.0/15",
            "172.160.0.0/11",
            "172.192.0.0/12",
            "172.208.0.0/13",
            "191.232.0.0/13",
            "199.30.16.0/20",
            "204.79.180.0/22",
            "207.46.0.0/16",
            "207.68.128.0/18",
            "213.199.128.0/18",
            "2603:1000::/24",
            "2620:1ec::/36",
            "2a01:110::/31",
        ],
    },
    Networks {
        operator: Operator::Apple,
        numbers: &[714, 6_185],
        ranges: &["17.0.0.0/8", "2620:149::/36", "2a01:b740::/30", "2403:300::/32"],
    },
    Networks {
        operator: Operator::Yandex,
        numbers: &[13_238, 200_350, 208_722],
        ranges: &[
            "5.45.192.0/18",
            "5.255.192.0/18",
            "37.9.64.0/18",
            "37.140.128.0/18",
            "77.88.0.0/18",
            "84.252.160.0/19",
            "87.250.224.0/19",
            "90.156.176.0/22",
            "92.255.112.0/20",
            "93.158.128.0/18",
            "95.108.128.0/17",
            "141.8.128.0/18",
            "178.154.128.0/17",
            "185.32.187.0/24",
            "199.21.96.0/22",
            "199.36.240.0/22",
            "213.180.192.0/19",
            "2a02:6b8::/29",
        ],
    },
    Networks {
        operator: Operator::Meta,
        numbers: &[32_934, 54_115, 63_293],
        ranges: &[
            "31.13.24.0/21",
            "31.13.64.0/18",
            "45.64.40.0/22",
            "57.141.0.0/16",
            "57.144.0.0/14",
            "66.220.144.0/20",
            "69.63.176.0/20",
            "69.171.224.0/19",
            "74.119.76.0/22",
            "102.132.96.0/20",
            "103.4.96.0/22",
            "129.134.0.0/16",
            "147.75.208.0/20",
            "157.240.0.0/16",
            "163.70.128.0/17",
            "173.252.64.0/18",
            "179.60.192.0/22",
            "185.60.216.0/22",
            "185.89.216.0/22",
            "204.15.20.0/22",
            "2620:0:1c00::/40",
            "2620:10d:c090::/44",
            "2a03:2880::/31",
        ],
    },
];

static RANGES: LazyLock<Vec<(Operator, Vec<Cidr>)>> = LazyLock::new(|| {
    let read = |text: &&str| Cidr::parse(text.as_bytes()).map(|(range, _)| range);
    NETWORKS.iter().map(|n| (n.operator, n.ranges.iter().filter_map(read).collect())).collect()
});

/// Whether an address may be an operator's; `number` is that of its network, where it is known.
pub fn may_be(operator: Operator, address: IpAddr, number: Option<u32>) -> bool {
    if let Some(number) = number {
        return NETWORKS.iter().any(|n| n.operator == operator && n.numbers.contains(&number));
    }
    let mut known = RANGES.iter().filter(|(who, _)| *who == operator);
    known.any(|(_, ranges)| ranges.iter().any(|range| range.matches(address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        for (n, networks) in NETWORKS.iter().enumerate() {
            assert_eq!(networks.ranges.len(), RANGES[n].1.len());
            for text in networks.ranges {
                let (_, is_odd) = Cidr::parse(text.as_bytes()).unwrap();
                assert!(!is_odd, "{text}");
            }
        }
    }

    #[test]
    fn who_may_be() {
        let at = |text: &str| text.parse().unwrap();
        assert!(may_be(Operator::Google, at("66.249.66.1"), None));
        assert!(may_be(Operator::Google, at("2001:4860:4801::1"), None));
        assert!(!may_be(Operator::Google, at("203.0.113.1"), None));
        assert!(!may_be(Operator::Google, at("66.249.66.1"), Some(64_500)));
        assert!(may_be(Operator::Apple, at("203.0.113.1"), Some(714)));
        assert!(may_be(Operator::Microsoft, at("157.55.39.1"), None));
    }
}
