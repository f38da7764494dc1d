#!/usr/bin/env python3
"""Writes an access log in nginx's combined format, the same for the same seed.

    bench/access_log.py --lines 5000000 --seed 1 > access.log

What it has of a real one: few addresses and URLs that come often and very many that come once, browsers
and robots of several hundred kinds, IPv6, escaped URLs, query strings, answers of all classes, lines that
are none, and a day that is busier in the afternoon.
"""

import argparse
import itertools
import random
import sys

MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
HOURS = [3, 2, 2, 1, 1, 2, 4, 6, 9, 11, 12, 12, 13, 14, 14, 13, 12, 12, 11, 10, 9, 7, 6, 4]
PAGES = "about news shop cart account search help blog wiki docs forum archive tag author".split()
STATIC = [".css", ".js", ".png", ".jpg", ".svg", ".woff2", ".ico", ".webp", ".pdf"]
PROBES = ["/wp-login.php", "/.env", "/xmlrpc.php", "/.git/config", "/phpmyadmin/", "/cgi-bin/luci"]
SITES = ["www.example.com", "www.example.com", "www.example.com", "www.google.com", "duckduckgo.com",
         "www.bing.com", "news.ycombinator.com", "t.co", "www.reddit.com", "lobste.rs"]
BOTS = [
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
    "Mozilla/5.0 (compatible; AhrefsBot/7.0; +http://ahrefs.com/robot/)",
    "Mozilla/5.0 (compatible; SemrushBot/7~bl; +http://www.semrush.com/bot.html)",
    "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)",
    "Mozilla/5.0 (compatible; YandexBot/3.0; +http://yandex.com/bots)",
    "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)",
    "curl/8.5.0", "python-requests/2.31.0", "Go-http-client/1.1", "Wget/1.21.4", "-",
]


def agents(r):
    found = []
    for major in range(90, 132):
        for system in ["Windows NT 10.0; Win64; x64", "Macintosh; Intel Mac OS X 10_15_7",
                       "X11; Linux x86_64", "Linux; Android 10; K"]:
            mobile = " Mobile" if "Android" in system else ""
            found.append(f"Mozilla/5.0 ({system}) AppleWebKit/537.36 (KHTML, like Gecko) "
                         f"Chrome/{major}.0.0.0{mobile} Safari/537.36")
        found.append(f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
                     f"Chrome/{major}.0.0.0 Safari/537.36 Edg/{major}.0.0.0")
        found.append(f"Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:{major}.0) Gecko/20100101 Firefox/{major}.0")
        found.append(f"Mozilla/5.0 (Windows NT 6.1; Win64; x64; rv:{major}.0) Gecko/20100101 Firefox/{major}.0")
    for major in range(12, 18):
        found.append(f"Mozilla/5.0 (iPhone; CPU iPhone OS {major}_2 like Mac OS X) AppleWebKit/605.1.15 "
                     f"(KHTML, like Gecko) Version/{major}.2 Mobile/15E148 Safari/604.1")
        found.append(f"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 "
                     f"(KHTML, like Gecko) Version/{major}.4 Safari/605.1.15")
    r.shuffle(found)
    return found


def skewed(count, power):
    """Cumulated weights: the nth comes 1/n^power as often as the first."""
    return list(itertools.accumulate(1 / (n + 1) ** power for n in range(count)))


def urls(r, count):
    found = ["/"]
    for n in range(count - 1):
        page = r.choice(PAGES)
        kind = n % 10
        if kind < 5:
            found.append(f"/{page}/{n}/")
        elif kind < 6:
            found.append(f"/{page}/caf%C3%A9-{n}.html")
        elif kind < 7:
            found.append(f"/{page}?id={n}&page={n % 7}")
        else:
            found.append(f"/assets/{page}/{n:x}{r.choice(STATIC)}")
    return found


def address(r):
    if r.random() < 0.1:
        return f"2001:db8:{r.randrange(65536):x}:{r.randrange(1, 65536):x}::{r.randrange(1, 65536):x}"
    return f"{r.randrange(1, 224)}.{r.randrange(256)}.{r.randrange(256)}.{r.randrange(1, 255)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=5_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--addresses", type=int, default=150_000)
    parser.add_argument("--urls", type=int, default=60_000)
    options = parser.parse_args()
    r = random.Random(options.seed)
    people = agents(r)
    clients = []
    for n in range(options.addresses):
        pool = BOTS if n % 12 == 0 else people
        clients.append((address(r), pool[min(int(r.expovariate(6 / len(pool))), len(pool) - 1)]))
    pages = urls(r, options.urls)
    sizes = [int(r.lognormvariate(8.5, 1.6)) for _ in pages]
    client_weights, page_weights = skewed(len(clients), 0.75), skewed(len(pages), 0.9)
    per_hour = options.lines / (options.days * sum(HOURS))
    write, written, batch = sys.stdout.write, 0, 20_000
    slots = [(day, hour) for day in range(options.days) for hour in range(24)]
    due = 0.0
    for day, hour in slots:
        due += HOURS[hour] * per_hour
        last = (day, hour) == slots[-1]
        left = (options.lines if last else min(options.lines, int(due))) - written
        stamp = f"{day % 28 + 1:02}/{MONTHS[9 + day // 28]}/2026:{hour:02}:"
        done = 0
        while done < left:
            count = min(batch, left - done)
            who = r.choices(clients, cum_weights=client_weights, k=count)
            what = r.choices(range(len(pages)), cum_weights=page_weights, k=count)
            dice = [r.random() for _ in range(count)]
            lines = []
            for n, ((addr, agent), page, die) in enumerate(zip(who, what, dice)):
                second = (done + n) * 3600 // left
                lines.append(line(addr, agent, pages[page], sizes[page], die, second, stamp))
            write("".join(lines))
            done += count
        written += left


def line(addr, agent, url, size, die, second, stamp):
    status, method, referrer = 200, "GET", "-"
    low = int(die * 1e6)
    if low < 300:
        return ["broken line without anything\n", f'{addr} - - [] "GET / HTTP/1.1" 200 1 "-" "-"\n',
                f'nobody - - [{stamp}{second // 60:02}:{second % 60:02} +0000] "GET / HTTP/1.1" 200 1 "-" "x"\n'][low % 3]
    if low < 400:
        return f'{addr} - - [{stamp}{second // 60:02}:{second % 60:02} +0000] "\\x16\\x03\\x01\\x02" 400 157 "-" "-"\n'
    if die > 0.97:
        status, size = (404, 153)
        url = PROBES[low % 6] if die > 0.985 else f"{url}missing"
    elif die > 0.93:
        status, size = 304, 0
    elif die > 0.91:
        status, size = 301, 169
    elif die > 0.905:
        status = 500
    elif die > 0.9:
        status, size = 403, 146
    if low % 37 == 0:
        method, url = "POST", url.split("?")[0]
    elif low % 53 == 0:
        method, size = "HEAD", 0
    if low % 2:
        referrer = f"https://{SITES[low // 2 % 10]}/" + ("" if low % 3 else f"from/{low % 5000}")
    protocol = "HTTP/2.0" if low % 5 < 3 else "HTTP/1.1"
    return (f'{addr} - - [{stamp}{second // 60:02}:{second % 60:02} +0000] "{method} {url} {protocol}" '
            f'{status} {size} "{referrer}" "{agent}"\n')


if __name__ == "__main__":
    main()
