"""What callgrind has counted: how often each instruction of each file was executed.

A run with `OPTIONS` leaves a file that `read` turns into a `Counts`.  The difference of two runs, one
with many requests and one with few, is what the requests between have executed.
"""
import re
from collections import Counter, defaultdict

OPTIONS = ['--dump-instr=yes', '--compress-pos=no', '--compress-strings=no']
# What the processor fetches and keeps: of an instruction in it the whole line is there.
LINE_BYTES = 64
KIB = 1024


class Counts:
    """`at[(object, address)]`: executions; `function[(object, address)]`: the symbol it belongs to."""

    def __init__(self):
        self.at, self.function, self.total = Counter(), {}, 0


def read(path):
    """Addresses are those within the file of the object, wherever it was loaded."""
    counts, obj, function, inclusive = Counts(), '', '', False
    with open(path, errors='replace') as lines:
        for line in lines:
            if line.startswith('0x'):
                # The line behind `calls=` says what the function that was called has cost.
                if not inclusive:
                    address, _, cost = line.split()
                    place = obj, int(address, 16)
                    counts.at[place] += int(cost)
                    counts.function[place] = function
                inclusive = False
            elif line.startswith('calls='):
                inclusive = True
            elif line.startswith('ob='):
                obj = line[3:].strip()
            elif line.startswith('fn='):
                function = line[3:].strip()
            elif line.startswith(('summary:', 'totals:')):
                counts.total = int(line.split()[1])
    return counts


class Steady:
    """What a request executes: instructions, and the places that at least every second one comes by."""

    def __init__(self, few, many, requests):
        self.instructions = (many.total - few.total) / requests
        grown = ((place, n - few.at.get(place, 0)) for place, n in many.at.items())
        self.at = {place: n / requests for place, n in grown if 2 * n >= requests}
        self.function = many.function

    def lines(self):
        """Distinct lines of code, which is what a request needs in the processor's caches."""
        return {(obj, address // LINE_BYTES) for obj, address in self.at}

    def kib(self):
        return len(self.lines()) * LINE_BYTES / KIB

    def functions(self):
        """(lines, instructions a request, name) of each function, the one with most lines first."""
        lines, cost = defaultdict(set), Counter()
        for place, n in self.at.items():
            name = short(self.function[place])
            lines[name].add((place[0], place[1] // LINE_BYTES))
            cost[name] += n
        return sorted(((len(at), cost[name], name) for name, at in lines.items()), reverse=True)


def short(name):
    """A function's name without what tells one build from another."""
    return re.sub(r"::h[0-9a-f]{16}\b|'\d+$", '', name)
